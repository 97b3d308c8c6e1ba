"""Thrift's compact protocol, as far as Parquet footers use it: read, change, write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)


@dataclass
class Struct:
    """Fields as number, type and value, in their order."""

    fields: list[tuple[int, int, Any]] = field(default_factory=list)

    def get(self, number: int) -> Any:
        return next(value for found, _, value in self.fields if found == number)

    def set(self, number: int, value: Any) -> None:
        self.fields = [(found, kind, value if found == number else old) for found, kind, old in self.fields]


@dataclass
class Items:
    """A list and the type of its items."""

    kind: int
    items: list[Any]

    def __getitem__(self, index: int) -> Any:
        return self.items[index]

    def __iter__(self):
        return iter(self.items)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def write_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(encoded) + bytes([value])


def zigzag(value: int) -> int:
    return ((value << 1) ^ (value >> 63)) & (1 << 64) - 1


def read_value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (TRUE, FALSE):
        return kind == TRUE, at
    if kind == BYTE:
        return data[at], at + 1
    if kind in (I16, I32, I64):
        value, at = read_varint(data, at)
        return (value >> 1) ^ -(value & 1), at
    if kind == DOUBLE:
        return data[at : at + 8], at + 8
    if kind == BINARY:
        length, at = read_varint(data, at)
        return data[at : at + length], at + length
    if kind in (LIST, SET):
        size, item, at = data[at] >> 4, data[at] & 15, at + 1
        if size == 15:
            size, at = read_varint(data, at)
        items = []
        for _ in range(size):
            # Booleans in lists take a byte each.
            value, at = (data[at], at + 1) if item in (TRUE, FALSE) else read_value(data, at, item)
            items.append(value)
        return Items(item, items), at
    assert kind == STRUCT, kind
    return read_struct(data, at)


def read_struct(data: bytes, at: int) -> tuple[Struct, int]:
    found, number = Struct(), 0
    while data[at] != 0:
        delta, kind, at = data[at] >> 4, data[at] & 15, at + 1
        if delta:
            number += delta
        else:
            number, at = read_varint(data, at)
            number = (number >> 1) ^ -(number & 1)
        value, at = read_value(data, at, kind)
        found.fields.append((number, kind, value))
    return found, at + 1


def write_value(kind: int, value: Any) -> bytes:
    if kind in (TRUE, FALSE):
        return b""
    if kind == BYTE:
        return bytes([value])
    if kind in (I16, I32, I64):
        return write_varint(zigzag(value))
    if kind == DOUBLE:
        return value
    if kind == BINARY:
        return write_varint(len(value)) + value
    if kind in (LIST, SET):
        size = len(value.items)
        head = bytes([size << 4 | value.kind]) if size < 15 else bytes([0xF0 | value.kind]) + write_varint(size)
        is_bool = value.kind in (TRUE, FALSE)
        return head + b"".join(bytes([item]) if is_bool else write_value(value.kind, item) for item in value.items)
    return write_struct(value)


def write_struct(struct: Struct) -> bytes:
    encoded, last = b"", 0
    for number, kind, value in struct.fields:
        delta = number - last
        encoded += bytes([delta << 4 | kind]) if 0 < delta < 16 else bytes([kind]) + write_varint(zigzag(number))
        encoded += write_value(kind, value)
        last = number
    return encoded + b"\0"
