"""A key as its holder has it."""

import pytest

from dray.access.errors import Unauthenticated
from dray.access.keys import KEY_CHARS, new_key, parse_key
from dray.access.passwords import fits, hash_of
from dray.ids import SeededEntropy, SystemEntropy


def test_a_key_has_its_form_and_is_read_back():
    """D-250"""
    key = new_key(SystemEntropy())
    text = key.reveal()
    dray, number, secret, crc = text.split("_")
    assert (dray, len(number), len(secret), len(crc)) == ("dray", 8, 43, 6)
    assert len(text) == KEY_CHARS == 64
    assert parse_key(text) == key
    assert key.id == number


def test_keys_differ_and_dice_decide_them():
    assert new_key(SeededEntropy(1)) == new_key(SeededEntropy(1))
    assert len({new_key(SystemEntropy()).reveal() for _ in range(1_000)}) == 1_000


def test_a_key_shows_itself_without_its_secret():
    """AC7, D-257"""
    key = new_key(SystemEntropy())
    secret = key.reveal().split("_")[2]
    for text in (repr(key), str(key), f"{key}", repr([key]), repr({"key": key})):
        assert secret not in text
        assert key.id in text


def bad_keys() -> dict[str, str]:
    text = new_key(SeededEntropy("bad")).reveal()
    flipped = "x" if text[20] != "x" else "y"
    return {
        "empty": "",
        "a mebibyte": "dray_" + "x" * (1 << 20),
        "a mebibyte of a key": text * (1 << 14),
        "cut": text[:-1],
        "longer": text + "0",
        "a wrong crc": text[:-6] + ("000000" if text[-6:] != "000000" else "000001"),
        "a letter that is mistyped": text[:20] + flipped + text[21:],
        "another prefix": "kray" + text[4:],
        "a line break": text[:-1] + "\n",
        "no letter": text[:20] + "-" + text[21:],
        "not ASCII": text[:20] + "ü" + text[21:],
        "a lone surrogate": text[:20] + "\udcff" + text[21:],
        "a NUL": text[:20] + "\0" + text[21:],
    }


@pytest.mark.parametrize("shown", bad_keys().values(), ids=bad_keys().keys())
def test_what_is_no_key_is_refused_before_anything_is_asked(shown):
    """D-203"""
    with pytest.raises(Unauthenticated) as refusal:
        parse_key(shown)
    assert refusal.value.facts == {}, "nothing of what was shown is in the error"
    assert len(str(refusal.value)) < 100


def test_every_mistyped_letter_is_found_by_the_crc():
    text = new_key(SeededEntropy("typing")).reveal()
    for at in range(5, 57):
        if text[at] == "_":
            continue
        wrong = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
        with pytest.raises(Unauthenticated):
            parse_key(wrong)


def test_what_is_stored_is_argon2id_with_its_cost_and_a_salt():
    """AK1, D-251"""
    stored = hash_of("secret", b"s" * 16)
    assert stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert stored != hash_of("secret", b"t" * 16)
    assert fits("secret", stored)
    assert not fits("Secret", stored)
    assert not fits("secret", stored[:-4])
    assert not fits("secret", "")
