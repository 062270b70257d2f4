"""Zigzag varints, as records use them."""


def put_varint(out: bytearray, number: int) -> None:
    """Append a signed number of at most 64 bits."""
    bits = ((number << 1) ^ (number >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    while bits > 0x7F:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    out.append(bits)


def varint_size(number: int) -> int:
    """How many bytes `put_varint` appends."""
    bits = ((number << 1) ^ (number >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    return max(1, (bits.bit_length() + 6) // 7)
