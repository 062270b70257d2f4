"""The memory of answers: planned before it is read, waited for in line, released as clients take it."""

import asyncio

from dray.fetch.line import GRAIN_BYTES, Account, Line

LIMIT = 16 * GRAIN_BYTES
RESERVE = LIMIT // 8


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def full(line: Line) -> list[Account]:
    """Accounts that hold the limit and its reserve."""
    accounts = []
    while line.room(GRAIN_BYTES):
        accounts.append(line.account())
        await accounts[-1].reserve(GRAIN_BYTES)
    return accounts


async def test_a_large_plan_gets_what_is_left_and_then_a_grain_of_the_reserve() -> None:
    """F14."""
    line = Line(LIMIT)
    first, second, third = line.account(), line.account(), line.account()
    assert await first.reserve(10 * GRAIN_BYTES) == 10 * GRAIN_BYTES
    assert await second.reserve(10 * GRAIN_BYTES) == 6 * GRAIN_BYTES
    assert await third.reserve(10 * GRAIN_BYTES) == GRAIN_BYTES
    assert line.held_bytes == 17 * GRAIN_BYTES
    assert line.waiting == 0


async def test_whatever_is_asked_for_no_more_is_granted_than_the_limit_and_its_reserve() -> None:
    """F14."""
    line = Line(LIMIT)
    await full(line)
    assert LIMIT <= line.held_bytes <= LIMIT + RESERVE
    assert line.room(1) == 0 or line.held_bytes + 1 <= LIMIT + RESERVE


async def test_who_waits_goes_on_in_order_and_a_small_one_does_not_wait_behind_large_ones() -> None:
    """F15."""
    line, order = Line(LIMIT), list[int]()
    holders = await full(line)

    async def come(number: int) -> None:
        assert await line.account().reserve(4 * GRAIN_BYTES) > 0
        order.append(number)

    waiting = [asyncio.create_task(come(number)) for number in range(3)]
    await settle()
    assert (order, line.waiting) == ([], 3)
    holders.pop().forget_plan()
    await settle()
    assert order == [0]
    holders.pop().forget_plan()
    holders.pop().forget_plan()
    await settle()
    assert order == [0, 1, 2]
    await asyncio.gather(*waiting)

    await full(line)
    large = asyncio.create_task(come(3))
    await settle()
    holders.pop().forget_plan()
    small = line.account()
    assert await small.reserve(100) == 100, "it takes of the reserve"
    large.cancel()


async def test_what_was_sent_makes_room_as_the_client_takes_it() -> None:
    """KP17 for the line: a plan becomes unsent bytes, and these get fewer."""
    line = Line(LIMIT)
    slow = line.account()
    await slow.reserve(LIMIT)
    slow.forget_plan()
    slow.keep_unsent(LIMIT)
    assert line.held_bytes == LIMIT
    slow.keep_unsent(LIMIT // 2)
    assert await line.account().reserve(LIMIT) == LIMIT // 2


async def test_who_gives_up_or_waited_too_long_leaves_the_line() -> None:
    line = Line(LIMIT, wait_s=0.01)
    holders = await full(line)
    assert await line.account().reserve(2 * GRAIN_BYTES) == 0
    assert line.waiting == 0
    patient = Line(LIMIT)
    held = await full(patient)
    gone = asyncio.create_task(patient.account().reserve(2 * GRAIN_BYTES))
    await settle()
    gone.cancel()
    await settle()
    assert patient.waiting == 0
    for account in (*holders, *held):
        account.forget_plan()
    assert (line.held_bytes, patient.held_bytes) == (0, 0)


async def test_who_is_cancelled_as_its_turn_comes_has_its_grant_on_its_account() -> None:
    """Whoever gave the account ends the plan, so nothing is lost."""
    line = Line(LIMIT)
    holders = await full(line)
    account = line.account()
    waiting = asyncio.create_task(account.reserve(2 * GRAIN_BYTES))
    await settle()
    holders.pop().forget_plan()
    await asyncio.sleep(0)  # the wake-up has run, the task has not
    waiting.cancel()
    await settle()
    account.forget_plan()
    for holder in holders:
        holder.forget_plan()
    assert line.held_bytes == 0
