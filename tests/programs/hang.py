"""Never ends by itself."""

import signal

while True:
    signal.pause()
