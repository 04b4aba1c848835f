"""Decoding under a grammar: records of JSON as an automaton over characters, and masks of the tokens that may follow.

What must not live here: the model, what else chooses tokens.
"""

from __future__ import annotations

import functools
import random
import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from aiperf.workloads.decoder.generate import Pick, choose

Automaton = list[dict[str, int]]
"""State -> character -> next state. State 0 is the start; what is missing is not allowed."""

_BANNED = -1e4
"""The logit of a token that is not allowed: far below all others, and still a number."""
_LETTERS = string.ascii_lowercase
_PUNCTUATION = '[]{}":,'
_PIECE = 6
"""Characters of the longest token."""
_WALK = 4096
"""Characters of the text from which half of the tokens are cut."""


def records(fields: int, *, seed: int = 0) -> Automaton:
    """An endless list of JSON objects with ``fields`` named keys, whose values are numbers, strings and booleans in
    turn."""
    drawn, states = random.Random(seed), Automaton([{}])

    def literal(state: int, text: str, end: int | None = None) -> int:
        """Through ``text``, the last character to ``end`` or a new state."""
        for number, character in enumerate(text, start=1):
            known = end if number == len(text) and end is not None else None
            if known is None:
                states.append({})
                known = len(states) - 1
            states[state][character] = known
            state = known
        return state

    def value(state: int, kind: int) -> int:
        if kind == 0:
            digits = literal(state, "1")
            states[state] |= dict.fromkeys("23456789", digits)
            states[digits] |= dict.fromkeys(string.digits, digits)
            return digits
        if kind == 1:
            inside = literal(state, '"')
            states[inside] |= dict.fromkeys(_LETTERS, inside)
            return literal(inside, '"')
        return literal(state, "false", literal(state, "true"))

    state = opened = literal(0, "[{")
    for field in range(fields):
        name = "".join(drawn.choices(_LETTERS, k=4))
        state = value(literal(state, f'{"," if field else ""}"{name}":'), field % 3)
    literal(state, "},{", opened)
    return states


def vocabulary(size: int, grammar: Automaton, *, seed: int = 0) -> list[str]:
    """``size`` tokens: every character alone, then pieces, half of them cut from text of the grammar, half of random
    letters."""
    drawn, state, text = random.Random(seed), 0, ""
    while len(text) < _WALK:
        character = drawn.choice(sorted(grammar[state]))
        text, state = text + character, grammar[state][character]
    tokens = list(_LETTERS + string.digits + _PUNCTUATION)[:size]
    while len(tokens) < size:
        length = drawn.randint(2, _PIECE)
        at = drawn.randrange(_WALK - length)
        tokens.append(text[at : at + length] if len(tokens) % 2 else "".join(drawn.choices(_LETTERS, k=length)))
    return tokens


def after(grammar: Automaton, state: int, token: str) -> int | None:
    """The state after a token, or None where it is not allowed."""
    at: int | None = state
    for character in token:
        at = grammar[at].get(character) if at is not None else None
        if at is None:
            return None
    return at


class WalkedMasks:
    """Every token of the vocabulary walks through the automaton, for every sequence and step; with ``remember`` once
    for each state that is met."""

    def __init__(self, grammar: Automaton, tokens: Sequence[str], device: Any, *, remember: bool = False) -> None:
        self._grammar, self._tokens, self._device = grammar, tokens, device
        self._mask = functools.cache(self._walked) if remember else self._walked
        self._states: list[int] = []

    def restart(self, batch: int) -> None:
        """All at state 0."""
        self._states = [0] * batch

    def _walked(self, state: int) -> Any:
        allowed = [after(self._grammar, state, token) is not None for token in self._tokens]
        return torch.tensor(allowed, device=self._device)

    def allowed(self) -> Any:
        """Made on the host and moved to the device."""
        return torch.stack([self._mask(state) for state in self._states])

    def take(self, tokens: Any) -> None:
        """Walk through the tokens, which are waited for. Raises ValueError for one that is not allowed."""
        for row, token in enumerate(tokens.tolist()):
            state = after(self._grammar, self._states[row], self._tokens[token])
            if state is None:
                raise ValueError(f"token {token} is not allowed in state {self._states[row]}")
            self._states[row] = state


class CompiledMasks:
    """A table of the state after each token, made once for all states; on the device, which needs no host to use it."""

    def __init__(self, grammar: Automaton, tokens: Sequence[str], device: Any) -> None:
        table = _next_states(grammar, tokens)
        self._next = torch.from_numpy(table).to(device)
        self._allowed = self._next >= 0

    @property
    def nbytes(self) -> int:
        """Of both tables."""
        return int(self._next.nbytes + self._allowed.nbytes)

    def restart(self, batch: int) -> None:
        """All at state 0."""
        self._states = torch.zeros(batch, dtype=torch.long, device=self._next.device)

    def allowed(self) -> Any:
        """A row of the table for each."""
        return self._allowed[self._states]

    def take(self, tokens: Any) -> None:
        """Look the next states up."""
        self._states = self._next[self._states, tokens].long()


def _next_states(grammar: Automaton, tokens: Sequence[str]) -> Any:
    """[states, vocab]: the state after each token from each state, -1 where it is not allowed; all walk at once."""
    alphabet = {character: number for number, character in enumerate(sorted({c for t in tokens for c in t}))}
    dead = len(grammar)
    step = np.full((dead + 1, len(alphabet) + 1), dead, dtype=np.int32)
    step[:, -1] = np.arange(dead + 1)
    for state, ways in enumerate(grammar):
        for character, following in ways.items():
            if character in alphabet:
                step[state, alphabet[character]] = following
    longest = max(map(len, tokens))
    codes = np.full((longest, len(tokens)), len(alphabet), dtype=np.int32)
    for number, token in enumerate(tokens):
        codes[: len(token), number] = [alphabet[character] for character in token]
    at = np.repeat(np.arange(dead, dtype=np.int32)[:, None], len(tokens), axis=1)
    for column in codes:
        at = step[at, column]
    return np.where(at == dead, -1, at)


def allowed_by(masks: WalkedMasks | CompiledMasks) -> Pick:
    """``choose``, of the tokens that ``masks`` allow, which take what is chosen."""

    def pick(logits: Any) -> tuple[Any, Any]:
        chosen, margin = choose(logits.masked_fill(~masks.allowed(), _BANNED))
        masks.take(chosen)
        return chosen, margin

    return pick
