"""Keys and the cluster's secret, kept with the catalog; and a naive twin of them."""

import json
import random

import pytest

from dray.machine import access, checkpoint, listing
from dray.machine.access import (
    HASH_PREFIX,
    HIDDEN,
    MINUTE_MS,
    CreateKey,
    KeyCreated,
    KeyRole,
    RevokeKey,
    SetSecret,
    Touch,
    TouchKeys,
)
from dray.machine.command import MAX_TIME_MS, NotActive
from dray.machine.recovery import renew
from dray.machine.verdict import DONE, Refused, Why

from .scribe import HOUR, NOW, Tape

HASH = HASH_PREFIX + "canary-of-the-hash"
SECRET = b"canary-of-the-cluster-secret-32!"


def key(number: int = 1, **fields) -> CreateKey:
    given = {"id": f"{number:08d}", "name": "a", "principal": "User:a", "role": KeyRole.OPERATOR, "hash": HASH} | fields
    return CreateKey(**given)


def why(verdict) -> Why:
    assert isinstance(verdict, Refused), verdict
    return verdict.why


def test_a_key_is_made_once_used_and_revoked():
    """AK2, D-250, D-253, D-311"""
    tape = Tape(version=2)
    writer, keys = tape.open(), tape.machine.access
    assert not keys.closed
    assert writer.do(key()) == KeyCreated(created_ms=NOW)
    assert writer.do(key()) == KeyCreated(created_ms=NOW), "the same id and hash: the same answer"
    assert why(writer.do(key(hash=HASH + "!"))) is Why.EXISTS
    assert keys.closed
    assert keys.find("00000001") is not None
    writer.live(3 * MINUTE_MS)
    assert writer.do(TouchKeys(rows=(Touch(id="00000001", used_ms=NOW + 2 * MINUTE_MS + 7),))) == DONE
    assert writer.do(TouchKeys(rows=(Touch(id="nobody00", used_ms=NOW),))) == DONE
    assert keys.keys["00000001"].used_ms == (NOW + 2 * MINUTE_MS) // MINUTE_MS * MINUTE_MS
    assert writer.do(RevokeKey(id="00000001")) == DONE
    revoked_ms = keys.keys["00000001"].revoked_ms
    writer.live(MINUTE_MS)
    assert writer.do(RevokeKey(id="00000001")) == DONE
    assert keys.keys["00000001"].revoked_ms == revoked_ms > 0
    assert keys.find("00000001") is None
    assert why(writer.do(key())) is Why.EXISTS, "nobody gets the id of a revoked key"
    assert why(writer.do(RevokeKey(id="00000002"))) is Why.NOT_FOUND
    assert keys.closed, "to revoke the last key does not open the doors"


def test_a_key_is_judged_by_the_time_of_the_log():
    """D-253: no wall clock makes a key last longer, or shorter"""
    tape = Tape(version=2)
    writer, keys = tape.open(), tape.machine.access
    assert isinstance(writer.do(key(life_ms=HOUR)), KeyCreated)
    assert isinstance(writer.do(key(2, life_ms=MAX_TIME_MS)), KeyCreated)
    writer.live(HOUR - 1)
    assert keys.find("00000001") is not None
    writer.live(1)
    assert keys.find("00000001") is None
    assert keys.find("00000002") is not None


def test_nothing_but_an_argon2id_hash_is_stored():
    """AK1, D-251"""
    writer = Tape(version=2).open()
    assert why(writer.do(key(hash="dray_00000001_secret"))) is Why.MALFORMED
    assert why(writer.do(key(hash="$argon2i$v=19"))) is Why.MALFORMED


def test_neither_hashes_nor_the_secret_are_shown():
    """AK1, D-257: `meta ls`, `meta get` and `meta tail`"""
    tape = Tape(version=2)
    writer = tape.open()
    writer.do(key())
    writer.do(SetSecret(secret=SECRET))
    shown = json.dumps([dict(listing.ls(tape.machine)), [listing.render(tape.machine, raw) for _, raw in tape.entries]])
    for text in ("canary", SECRET.hex(), HASH.encode().hex()):
        assert text not in shown
    assert shown.count(HIDDEN) == 4
    assert "canary" not in repr(tape.machine.access.keys)


def test_the_first_secret_stays_until_it_is_replaced_on_purpose():
    tape = Tape(version=2)
    writer, keys = tape.open(), tape.machine.access
    assert writer.do(SetSecret(secret=SECRET)) == DONE
    assert writer.do(SetSecret(secret=SECRET)) == DONE
    assert why(writer.do(SetSecret(secret=b"o" * 32))) is Why.STALE
    assert (keys.secret, keys.revision) == (SECRET, 1)
    assert writer.do(SetSecret(secret=b"o" * 32, expected_revision=1)) == DONE
    assert (keys.secret, keys.revision) == (b"o" * 32, 2)


def test_keys_that_work_no_more_make_room(monkeypatch):
    monkeypatch.setattr(access, "MAX_KEYS", 3)
    tape = Tape(version=2)
    writer, keys = tape.open(), tape.machine.access
    for number in (1, 2, 3):
        writer.do(key(number))
        writer.live(1)
    assert why(writer.do(key(4))) is Why.LIMIT
    writer.do(RevokeKey(id="00000003"))
    writer.do(RevokeKey(id="00000002"))
    assert isinstance(writer.do(key(4)), KeyCreated)
    assert sorted(keys.keys) == ["00000001", "00000003", "00000004"], "the oldest of them went"


@pytest.mark.parametrize("number", ["", "1234567", "123456789", "12345678\n", "1234 678", "1234567ü"])
def test_an_id_has_eight_letters_or_digits(number):
    assert why(Tape(version=2).open().do(key(id=number))) is Why.MALFORMED


def test_only_the_catalog_has_them_and_only_since_version_2():
    """M10"""
    assert why(Tape(domain=1, domains=2, version=2).open().do(key())) is Why.FOREIGN
    with pytest.raises(NotActive):
        Tape(version=1).open().do(key())


def test_in_a_log_that_begins_anew_nothing_of_a_key_lies_in_the_future():
    """RN1"""
    tape = Tape(version=2)
    writer, keys = tape.open(wall_ms=NOW), tape.machine.access
    writer.live(3 * 24 * HOUR)
    writer.do(key(life_ms=365 * 24 * HOUR))
    writer.do(TouchKeys(rows=(Touch(id="00000001", used_ms=NOW + 9 * 24 * HOUR),)))
    writer.do(RevokeKey(id="00000001"))
    renew(tape.machine, b"new-log-", NOW)
    found = keys.keys["00000001"]
    assert max(found.created_ms, found.used_ms, found.revoked_ms) <= NOW
    assert found.expires_ms > NOW + 365 * 24 * HOUR
    assert keys.find("00000001") is None


class Twin:
    """The same rules, as one would say them."""

    def __init__(self) -> None:
        self.keys: dict[str, dict] = {}
        self.secrets = [b""]

    def make(self, command: CreateKey, now: int) -> bool:
        known = self.keys.get(command.id)
        if known:
            return known["hash"] == command.hash and not known["revoked"]
        if not command.hash.startswith("$argon2id$"):
            return False
        expires = now + command.life_ms if command.life_ms else 0
        self.keys[command.id] = {"hash": command.hash, "expires": expires, "used": 0, "revoked": False}
        return True

    def revoke(self, key_id: str) -> bool:
        if key_id in self.keys:
            self.keys[key_id]["revoked"] = True
        return key_id in self.keys

    def touch(self, key_id: str, used: int, now: int) -> None:
        if key_id in self.keys:
            minute = min(used, now) // 60_000 * 60_000
            self.keys[key_id]["used"] = max(minute, self.keys[key_id]["used"])

    def set_secret(self, secret: bytes, revision: int) -> bool:
        if secret == self.secrets[-1]:
            return True
        if revision != len(self.secrets) - 1:
            return False
        self.secrets.append(secret)
        return True

    def working(self, now: int) -> list[str]:
        return sorted(
            one for one, row in self.keys.items() if not row["revoked"] and (not row["expires"] or row["expires"] > now)
        )


@pytest.mark.parametrize("seed", range(20))
def test_the_twin_agrees_after_any_history_and_a_checkpoint_loses_nothing(seed):
    """K2, AK2"""
    dice = random.Random(seed)
    tape, twin = Tape(version=2), Twin()
    writer = tape.open()
    for _ in range(200):
        number, now = dice.randrange(12), writer.time_ms
        match dice.randrange(6):
            case 0:
                life_ms = dice.choice([0, 0, 1, dice.randrange(1, HOUR)])
                command = key(number, life_ms=life_ms, hash=dice.choice([HASH, HASH + "2", "plain"]))
                assert isinstance(writer.do(command), KeyCreated) == twin.make(command, now)
            case 1:
                assert (writer.do(RevokeKey(id=f"{number:08d}")) == DONE) == twin.revoke(f"{number:08d}")
            case 2 | 3:
                used = max(0, now + dice.randrange(-HOUR, HOUR))
                writer.do(TouchKeys(rows=(Touch(id=f"{number:08d}", used_ms=used),)))
                twin.touch(f"{number:08d}", used, now)
            case 4:
                secret, revision = bytes([dice.randrange(3)]) * 32, dice.randrange(4)
                set_now = writer.do(SetSecret(secret=secret, expected_revision=revision)) == DONE
                assert set_now == twin.set_secret(secret, revision)
            case 5:
                writer.live(dice.randrange(HOUR))
        if dice.random() < 0.05:
            dumped = checkpoint.dump(tape.machine)
            tape.machine = checkpoint.load(dumped)
            assert checkpoint.dump(tape.machine) == dumped
        keys = tape.machine.access
        assert sorted(one for one in keys.keys if keys.find(one)) == twin.working(tape.machine.time_ms)
        assert {one: row.used_ms for one, row in keys.keys.items()} == {k: r["used"] for k, r in twin.keys.items()}
        assert keys.secret == twin.secrets[-1]
        assert keys.closed == bool(twin.keys)
