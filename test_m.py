import pytest, mine
def test_pair(aiperf):
    aiperf.compare(mine.s2, mine.f2, setup=mine.data)
def test_bad(aiperf):
    aiperf.compare(mine.f2, mine.s2, setup=mine.data)
@pytest.mark.aiperf
def test_body():
    assert mine.fast() > 0
