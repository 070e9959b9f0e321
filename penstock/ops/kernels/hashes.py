"""The three string hashes that TF's ops use: FarmHash fingerprints, SipHash-2-4, and the old Murmur variant.

Values are part of saved models (vocabulary buckets, feature crosses), so they equal TF's bit for bit.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from penstock.ops.native import texts

_MASK = (1 << 64) - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_MURMUR = 0xC6A4A7935BD1E995
_unpack64 = struct.Struct("<Q").unpack_from
_unpack32 = struct.Struct("<I").unpack_from


def _rotate(v: int, n: int) -> int:
    """Rotates 64 bits to the right."""
    v &= _MASK
    return ((v >> n) | (v << (64 - n))) & _MASK


def _shift_mix(v: int) -> int:
    v &= _MASK
    return v ^ (v >> 47)


def _mix16(u: int, v: int, mul: int) -> int:
    a = ((u ^ v) & _MASK) * mul & _MASK
    a ^= a >> 47
    b = ((v ^ a) & _MASK) * mul & _MASK
    b ^= b >> 47
    return b * mul & _MASK


def fingerprint64(s: bytes) -> int:
    """FarmHash's Fingerprint64."""
    n = len(s)
    if n > 64:
        return _fingerprint_long(s, n)
    mul = (_K2 + n * 2) & _MASK
    if n > 16:
        return _fingerprint_17_to_32(s, n, mul) if n <= 32 else _fingerprint_33_to_64(s, n, mul)
    if n >= 8:
        a = _unpack64(s, 0)[0] + _K2
        b = _unpack64(s, n - 8)[0]
        return _mix16(_rotate(b, 37) * mul + a & _MASK, (_rotate(a, 25) + b) * mul & _MASK, mul)
    if n >= 4:
        return _mix16(n + (_unpack32(s, 0)[0] << 3), _unpack32(s, n - 4)[0], mul)
    if n > 0:
        y = s[0] + (s[n >> 1] << 8)
        z = n + (s[n - 1] << 2)
        return _shift_mix(y * _K2 & _MASK ^ z * _K0 & _MASK) * _K2 & _MASK
    return _K2


def _fingerprint_17_to_32(s: bytes, n: int, mul: int) -> int:
    a = _unpack64(s, 0)[0] * _K1
    b = _unpack64(s, 8)[0]
    c = _unpack64(s, n - 8)[0] * mul
    d = _unpack64(s, n - 16)[0] * _K2
    return _mix16(_rotate(a + b, 43) + _rotate(c, 30) + d & _MASK, a + _rotate(b + _K2, 18) + c & _MASK, mul)


def _fingerprint_33_to_64(s: bytes, n: int, mul: int) -> int:
    a = _unpack64(s, 0)[0] * _K2
    b = _unpack64(s, 8)[0]
    c = _unpack64(s, n - 8)[0] * mul
    d = _unpack64(s, n - 16)[0] * _K2
    y = _rotate(a + b, 43) + _rotate(c, 30) + d & _MASK
    z = _mix16(y, a + _rotate(b + _K2, 18) + c & _MASK, mul)
    e = _unpack64(s, 16)[0] * mul
    f = _unpack64(s, 24)[0]
    g = (y + _unpack64(s, n - 32)[0]) * mul
    h = (z + _unpack64(s, n - 24)[0]) * mul
    return _mix16(_rotate(e + f, 43) + _rotate(g, 30) + h & _MASK, e + _rotate(f + a, 18) + g & _MASK, mul)


def _weak32(s: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = struct.unpack_from("<4Q", s, at)
    a = a + w & _MASK
    b = _rotate(b + a + z, 21)
    c = a
    a = a + x + y & _MASK
    b = b + _rotate(a, 44)
    return a + z & _MASK, b + c & _MASK


# -- many at once -----------------------------------------------------------------------------------------------------

FEW = 24
"""Strings up to which one after the other is quicker than arrays of all."""


def fingerprints64(strings: np.ndarray) -> np.ndarray:
    """`fingerprint64` of each string of an array, as a vector of uint64."""
    flat = strings.ravel()
    found = texts.fingerprints(flat)
    if found is None:
        return _fingerprints64(flat.tolist())
    for i in np.flatnonzero(found == 0).tolist():
        found[i] = fingerprint64(flat.item(i))  # it is too long
    return found


def _fingerprints64(strings: list[bytes]) -> np.ndarray:
    if len(strings) <= FEW:
        return np.array([fingerprint64(s) for s in strings], np.uint64)
    return _fingerprints_at(*joined(strings))


def joined(strings: list[bytes]) -> tuple[bytes, np.ndarray, np.ndarray]:
    """One text, and where in it each string begins and how long it is."""
    text = b"\0".join(strings)
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == 0)
    if ends.size == len(strings) - 1:  # what separates them is in none of them, so that nobody needs to ask each for its length
        ends = np.append(ends, len(text))
        starts = np.empty_like(ends)
        starts[0] = 0
        np.add(ends[:-1], 1, out=starts[1:])
        return text, starts, ends - starts
    lengths = np.fromiter(map(len, strings), np.int64, len(strings))
    return text, np.cumsum(lengths + 1) - lengths - 1, lengths


def decimal_fingerprints64(numbers: np.ndarray) -> np.ndarray:
    """`fingerprint64` of each integer of a vector, written in decimal."""
    if numbers.size <= FEW:
        return np.array([fingerprint64(b"%d" % v) for v in numbers.tolist()], np.uint64)
    negative = numbers < 0
    rest = numbers.astype(np.uint64)
    rest = np.where(negative, np.uint64(0) - rest, rest)
    width = len(str(int(rest.max()))) + 1
    text = np.empty((numbers.size, width), np.uint8)
    lengths = np.ones(numbers.size, np.int64)
    if width <= 10:
        rest = rest.astype(np.uint32)  # divided faster
    for k in range(width - 1, 0, -1):
        quotient = rest // 10
        text[:, k] = rest - quotient * 10 + 48
        lengths += quotient != 0
        rest = quotient
    starts = np.arange(1, numbers.size + 1) * width - lengths
    if negative.any():
        starts -= negative
        lengths += negative
        text.reshape(-1)[starts[negative]] = ord("-")
    return _fingerprints_at(text.tobytes(), starts, lengths)


def siphashes(strings: np.ndarray, k0: int, k1: int) -> np.ndarray:
    """`siphash` of each string of an array, as a vector of uint64."""
    flat = strings.ravel()
    found = texts.siphashes(flat, k0, k1)
    return _siphashes(flat.tolist(), k0, k1) if found is None else found


def _siphashes(strings: list[bytes], k0: int, k1: int) -> np.ndarray:
    if len(strings) <= FEW:
        return np.array([siphash(s, k0, k1) for s in strings], np.uint64)

    def start(n: np.ndarray) -> list[np.ndarray]:
        keys = (k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573)
        return [np.full(n.size, key & _MASK, np.uint64) for key in keys]

    def take(v: list[np.ndarray], m: np.ndarray) -> None:
        v[3] = v[3] ^ m
        _many_sip_rounds(v, 2)
        v[0] = v[0] ^ m

    def end(v: list[np.ndarray], tail: np.ndarray, n: np.ndarray) -> np.ndarray:
        take(v, tail | (n.astype(np.uint64) << np.uint64(56)))
        v[2] = v[2] ^ np.uint64(0xFF)
        _many_sip_rounds(v, 4)
        return v[0] ^ v[1] ^ v[2] ^ v[3]

    return _word_by_word(strings, start, take, end)


def hashes64(strings: np.ndarray) -> np.ndarray:
    """`hash64` of each string of an array, as a vector of uint64."""
    flat = strings.ravel()
    found = texts.murmurs(flat)
    return _hashes64(flat.tolist()) if found is None else found


def _hashes64(strings: list[bytes], seed: int = 0xDECAFCAFFE) -> np.ndarray:
    if len(strings) <= FEW:
        return np.array([hash64(s, seed) for s in strings], np.uint64)
    mul = np.uint64(_MURMUR)

    def start(n: np.ndarray) -> list[np.ndarray]:
        return [np.uint64(seed) ^ (n.astype(np.uint64) * mul)]

    def take(h: list[np.ndarray], k: np.ndarray) -> None:
        k = k * mul
        h[0] = (h[0] ^ ((k ^ (k >> _47)) * mul)) * mul

    def end(h: list[np.ndarray], tail: np.ndarray, n: np.ndarray) -> np.ndarray:
        value = np.where(n & 7 != 0, (h[0] ^ tail) * mul, h[0])
        value = (value ^ (value >> _47)) * mul
        return value ^ (value >> _47)

    return _word_by_word(strings, start, take, end)


def _word_by_word(strings: list[bytes], start: Any, take: Any, end: Any) -> np.ndarray:
    """A hash that takes in eight bytes after the other: those of all strings of about one length at once.

    start(lengths) gives the state; take(state, words) changes it; end(state, rest, lengths) gets the last bytes, up to seven.
    """
    text, starts, lengths = joined(strings)
    padded = text + bytes(8)
    words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))  # the 8 bytes from each byte on
    result = np.empty(len(strings), np.uint64)
    counts = lengths >> 3
    for count in np.flatnonzero(np.bincount(counts)).tolist():
        chosen = np.flatnonzero(counts == count)
        at, n = starts[chosen], lengths[chosen]
        state = start(n)
        for k in range(count):
            take(state, words[at + 8 * k])
        kept = (np.uint64(1) << ((n & 7) * 8).astype(np.uint64)) - np.uint64(1)
        result[chosen] = end(state, words[at + 8 * count] & kept, n)
    return result


def _many_sip_rounds(v: list[np.ndarray], count: int) -> None:
    a, b, c, d = v
    for _ in range(count):
        a = a + b
        b = _turn(b, 51) ^ a
        a = _turn(a, 32)
        c = c + d
        d = _turn(d, 48) ^ c
        a = a + d
        d = _turn(d, 43) ^ a
        c = c + b
        b = _turn(b, 47) ^ c
        c = _turn(c, 32)
    v[:] = a, b, c, d


def _fingerprints_at(text: bytes, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Fingerprints of text[start : start + length] for many of these."""
    padded = text + bytes(8)
    letters = np.frombuffer(padded, np.uint8)
    words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))  # the 8 bytes from each byte on
    result = np.empty(lengths.size, np.uint64)
    kinds = np.searchsorted(_LAST_LENGTHS, lengths)
    for kind in np.flatnonzero(np.bincount(kinds)).tolist():
        chosen = np.flatnonzero(kinds == kind)
        at, n = starts[chosen], lengths[chosen]
        if kind == len(_BY_LENGTH):
            values: Any = [fingerprint64(text[a : a + size]) for a, size in zip(at.tolist(), n.tolist(), strict=True)]
            result[chosen] = np.array(values, np.uint64)
        else:
            result[chosen] = _BY_LENGTH[kind](letters, words, at, n)
    return result


def _turn(v: np.ndarray, n: int) -> np.ndarray:
    return (v >> np.uint64(n)) | (v << np.uint64(64 - n))


def _mixed(u: np.ndarray, v: np.ndarray, mul: np.ndarray) -> np.ndarray:
    a = (u ^ v) * mul
    a ^= a >> _47
    b = (v ^ a) * mul
    b ^= b >> _47
    return b * mul


def _multiplier(n: np.ndarray) -> np.ndarray:
    return n.astype(np.uint64) * np.uint64(2) + _U2


def _many_0(letters: np.ndarray, words: np.ndarray, at: np.ndarray, n: np.ndarray) -> np.ndarray:
    return np.full(n.size, _U2)


def _many_1_to_3(letters: np.ndarray, words: np.ndarray, at: np.ndarray, n: np.ndarray) -> np.ndarray:
    y = letters[at].astype(np.uint64) + (letters[at + (n >> 1)].astype(np.uint64) << np.uint64(8))
    z = n.astype(np.uint64) + (letters[at + n - 1].astype(np.uint64) << np.uint64(2))
    v = y * _U2 ^ z * _U0
    return (v ^ (v >> _47)) * _U2


def _many_4_to_7(letters: np.ndarray, words: np.ndarray, at: np.ndarray, n: np.ndarray) -> np.ndarray:
    low = np.uint64(0xFFFFFFFF)
    return _mixed(n.astype(np.uint64) + ((words[at] & low) << np.uint64(3)), words[at + n - 4] & low, _multiplier(n))


def _many_8_to_16(letters: np.ndarray, words: np.ndarray, at: np.ndarray, n: np.ndarray) -> np.ndarray:
    mul, a, b = _multiplier(n), words[at] + _U2, words[at + n - 8]
    return _mixed(_turn(b, 37) * mul + a, (_turn(a, 25) + b) * mul, mul)


def _many_17_to_32(letters: np.ndarray, words: np.ndarray, at: np.ndarray, n: np.ndarray) -> np.ndarray:
    mul, end = _multiplier(n), at + n
    a, b, c, d = words[at] * _U1, words[at + 8], words[end - 8] * mul, words[end - 16] * _U2
    return _mixed(_turn(a + b, 43) + _turn(c, 30) + d, a + _turn(b + _U2, 18) + c, mul)


def _many_33_to_64(letters: np.ndarray, words: np.ndarray, at: np.ndarray, n: np.ndarray) -> np.ndarray:
    mul, end = _multiplier(n), at + n
    a, b, c, d = words[at] * _U2, words[at + 8], words[end - 8] * mul, words[end - 16] * _U2
    y = _turn(a + b, 43) + _turn(c, 30) + d
    z = _mixed(y, a + _turn(b + _U2, 18) + c, mul)
    e, f = words[at + 16] * mul, words[at + 24]
    g, h = (y + words[end - 32]) * mul, (z + words[end - 24]) * mul
    return _mixed(_turn(e + f, 43) + _turn(g, 30) + h, e + _turn(f + a, 18) + g, mul)


_U0, _U1, _U2, _47 = np.uint64(_K0), np.uint64(_K1), np.uint64(_K2), np.uint64(47)
_LAST_LENGTHS = np.array([0, 3, 7, 16, 32, 64])
_BY_LENGTH = (_many_0, _many_1_to_3, _many_4_to_7, _many_8_to_16, _many_17_to_32, _many_33_to_64)

# -- more than 64 bytes -----------------------------------------------------------------------------------------------


class _Long:
    """The state for inputs of more than 64 bytes; `block` takes in 64 bytes."""

    __slots__ = ("v", "w", "x", "y", "z")

    def __init__(self, s: bytes) -> None:
        self.y = 81 * _K1 + 113 & _MASK
        self.z = _shift_mix(self.y * _K2 + 113) * _K2 & _MASK
        self.x = 81 * _K2 + _unpack64(s, 0)[0] & _MASK
        self.v = self.w = (0, 0)

    def block(self, s: bytes, at: int, mul: int, factor: int) -> None:
        x, y, z, v, w = self.x, self.y, self.z, self.v, self.w
        x = _rotate(x + y + v[0] + _unpack64(s, at + 8)[0], 37) * mul & _MASK
        y = _rotate(y + v[1] + _unpack64(s, at + 48)[0], 42) * mul & _MASK
        x ^= w[1] * factor & _MASK
        y = y + v[0] * factor + _unpack64(s, at + 40)[0] & _MASK
        z = _rotate(z + w[0], 33) * mul & _MASK
        self.v = _weak32(s, at, v[1] * mul, x + w[0])
        self.w = _weak32(s, at + 32, z + w[1], y + _unpack64(s, at + 16)[0])
        self.x, self.y, self.z = z, y, x


def _fingerprint_long(s: bytes, n: int) -> int:
    state = _Long(s)
    for at in range(0, (n - 1) // 64 * 64, 64):
        state.block(s, at, _K1, 1)
    # The last 64 bytes, which may overlap the blocks before, go in with another multiplier.
    mul = _K1 + ((state.z & 0xFF) << 1) & _MASK
    w0 = state.w[0] + ((n - 1) & 63) & _MASK
    v0 = state.v[0] + w0 & _MASK
    state.v = (v0, state.v[1])
    state.w = (w0 + v0 & _MASK, state.w[1])
    state.block(s, n - 64, mul, 9)
    v, w = state.v, state.w
    return _mix16(
        _mix16(v[0], w[0], mul) + _shift_mix(state.y) * _K0 + state.z & _MASK, _mix16(v[1], w[1], mul) + state.x & _MASK, mul
    )


def siphash(s: bytes, k0: int, k1: int) -> int:
    """SipHash-2-4 with the 128-bit key (k0, k1)."""
    k0 &= _MASK
    k1 &= _MASK
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    n = len(s)
    tail = s[n - n % 8 :] + b"\0" * (7 - n % 8) + bytes([n & 0xFF])
    for (m,) in struct.iter_unpack("<Q", s[: n - n % 8] + tail):
        v[3] ^= m
        _sip_rounds(v, 2)
        v[0] ^= m
    v[2] ^= 0xFF
    _sip_rounds(v, 4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def _sip_rounds(v: list[int], count: int) -> None:
    a, b, c, d = v
    for _ in range(count):
        a = a + b & _MASK
        b = _rotate(b, 51) ^ a
        a = _rotate(a, 32)
        c = c + d & _MASK
        d = _rotate(d, 48) ^ c
        a = a + d & _MASK
        d = _rotate(d, 43) ^ a
        c = c + b & _MASK
        b = _rotate(b, 47) ^ c
        c = _rotate(c, 32)
    v[:] = a, b, c, d


def hash64(s: bytes, seed: int = 0xDECAFCAFFE) -> int:
    """The hash behind StringToHashBucket: Murmur2 with 64 bits."""
    m, n = _MURMUR, len(s)
    h = seed ^ (n * m & _MASK)
    whole = n - n % 8
    for (k,) in struct.iter_unpack("<Q", s[:whole]):
        k = k * m & _MASK
        k = (k ^ (k >> 47)) * m & _MASK
        h = (h ^ k) * m & _MASK
    if n % 8:
        h = (h ^ int.from_bytes(s[whole:], "little")) * m & _MASK
    h = (h ^ (h >> 47)) * m & _MASK
    return h ^ (h >> 47)
