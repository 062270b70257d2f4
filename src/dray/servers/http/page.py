"""The page: plain HTML with a style of its own, no script, nothing from elsewhere.

Everything that is put into it is escaped where it becomes markup,
and the browser is told to run nothing, whatever a name or a message holds.

Invariants
    HT2  Text from outside becomes text on the page, never markup.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final
from urllib.parse import quote, urlencode

from dray.servers.http.overview import Overview, PartitionRow, TopicRow
from dray.telemetry import Warned

PAGE_ROWS: Final = 1_000
READY: Final = "ok"
UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")

STYLE: Final = """
:root{color-scheme:light dark;--ink:#1d2430;--soft:#667085;--line:#e4e7ec;--ground:#f6f7f9;--card:#fff;--accent:#2457c5;
--good:#18794e;--bad:#b42318;--wash:#fef3f2}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--soft:#98a2b3;--line:#2b3442;--ground:#10141b;--card:#171d27;
--accent:#84adff;--good:#4cc38a;--bad:#ff9183;--wash:#2a1a1a}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main,header>div{max-width:1080px;margin:0 auto;padding:0 24px}
header{background:var(--card);border-bottom:1px solid var(--line);padding:18px 0}
header>div{display:flex;flex-wrap:wrap;align-items:baseline;gap:4px 18px}
h1{font-size:21px;margin:0;letter-spacing:-.01em}h1 a{color:inherit;text-decoration:none}
h2{font-size:16px;margin:34px 0 10px;display:flex;flex-wrap:wrap;align-items:baseline;gap:4px 12px}
.soft{color:var(--soft);font-size:13px;font-weight:400}
.state{font-weight:600;color:var(--good)}.state.bad{color:var(--bad)}
.trouble{margin:22px 0 0;padding:12px 16px;border:1px solid var(--bad);border-radius:8px;background:var(--wash)}
.trouble p{margin:0;overflow-wrap:anywhere}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:8px;background:var(--card)}
table{border-collapse:collapse;width:100%}
th,td{padding:7px 14px;text-align:left;border-top:1px solid var(--line);vertical-align:top}
tr:first-child th{border-top:0;font-size:13px;font-weight:600;color:var(--soft);white-space:nowrap}
td{overflow-wrap:anywhere}
td:not([class]){min-width:10em}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.k{white-space:nowrap}
a{color:var(--accent)}
.empty{padding:14px;color:var(--soft);margin:0}
form{display:flex;gap:8px;margin:0 0 10px}
input,button{font:inherit;padding:5px 10px;border:1px solid var(--line);border-radius:6px;background:var(--card);
color:inherit}
input{flex:0 1 320px;min-width:0}
meter{width:130px;height:12px;vertical-align:middle}
nav{margin:10px 2px;display:flex;gap:18px}
code,.mono{font:13px/1.5 ui-monospace,monospace}
footer{margin:40px 0 28px;color:var(--soft);font-size:13px}
"""
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; style-src 'sha256-"
        + base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
        + "'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def overview_page(seen: Overview, search: str) -> str:
    """The whole cluster as this broker sees it."""
    failing = [f"{name}: {state}" for name, state in seen.states.items() if state != READY]
    parts = [
        _header(seen, is_ready=not failing),
        "<main>",
        _trouble(failing),
        _heading("Brokers", f"{len(seen.brokers)} live"),
        _brokers(seen),
        _heading("Disk", f"the log of commands takes {size(seen.log_bytes)}, {seen.entries:,} entries so far"),
        _disks(seen),
        _topics(seen, search),
        _heading("Last warnings", "since this broker started; the log has all of them"),
        _warnings(seen.warnings),
        "<footer>A look without login, for this machine and those you let in. "
        'Health: <a href="/readyz">/readyz</a>, metrics: <a href="/metrics">/metrics</a>.</footer></main>',
    ]
    return _document("Dray", "".join(parts))


def topic_page(name: str, partitions: int, first: int, rows: Sequence[PartitionRow]) -> str:
    """One topic, partition by partition."""
    body = [
        '<header><div><h1><a href="/">Dray</a></h1></div></header><main>',
        _heading(name, f"{partitions:,} partitions, {sum(row.size_bytes for row in rows):,} bytes on this page"),
        _table(
            ("n:Partition", "n:First offset", "n:Next offset", "n:Records", "n:Size"),
            (
                (str(row.number), f"{row.start:,}", f"{row.end:,}", f"{row.end - row.start:,}", size(row.size_bytes))
                for row in rows
            ),
            empty="no partitions here",
        ),
        _pages(f"/topics/{quote(name, safe='')}", {}, first, len(rows), partitions),
        '<nav><a href="/">all topics</a></nav></main>',
    ]
    return _document(f"{name} - Dray", "".join(body))


def missing_page(what: str) -> str:
    """What is shown where nothing is."""
    return _document(
        "Dray",
        '<header><div><h1><a href="/">Dray</a></h1></div></header>'
        f'<main>{_heading("Not here", "")}<p>{escape(what)}</p><nav><a href="/">all topics</a></nav></main>',
    )


def size(count: int) -> str:
    """Bytes for people."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(UNITS))
    return f"{count / 1024**power:.1f} {UNITS[power - 1]}"


def _document(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def _header(seen: Overview, *, is_ready: bool) -> str:
    state = '<span class="state">ready</span>' if is_ready else '<span class="state bad">not ready</span>'
    facts = f"version {seen.version}, cluster {seen.cluster_id}, seen {_moment(seen.now_ms)}"
    return f'<header><div><h1><a href="/">Dray</a></h1>{state}<span class="soft">{escape(facts)}</span></div></header>'


def _heading(text: str, note: str) -> str:
    return f'<h2>{escape(text)}<span class="soft">{escape(note)}</span></h2>'


def _trouble(failing: Sequence[str]) -> str:
    lines = "".join(f"<p>{escape(line)}</p>" for line in failing)  # HT2
    return f'<div class="trouble" role="alert">{lines}</div>' if failing else ""


def _brokers(seen: Overview) -> str:
    rows = (
        (
            f"{row.broker_id} (this one)" if row.is_this else str(row.broker_id),
            row.address,
            row.zone or "-",
            row.build,
            _moment(row.started_ms),
        )
        for row in seen.brokers
    )
    return _table(
        ("k:Id", "Clients connect to", "Zone", "k:Version", "k:Started"), rows, empty="no broker is registered"
    )


def _disks(seen: Overview) -> str:
    if not seen.disks:
        return '<div class="scroll"><p class="empty">nothing is kept on a disk of this machine</p></div>'
    rows = []
    for disk in seen.disks:
        used = disk.size_bytes - disk.free_bytes
        share = 100 * used // disk.size_bytes if disk.size_bytes else 0
        meter = f'<meter min="0" max="100" low="80" high="95" optimum="0" value="{share}">{share}%</meter>'
        told = '<span class="state bad">full</span>' if disk.is_full else ""
        cells = _cells((disk.what, disk.path, size(disk.free_bytes), size(disk.size_bytes)), ("", "", "n", "n"))
        rows.append(f'<tr>{cells}<td class="k">{meter} {share}% {told}</td></tr>')
    head = _head(("What", "Where", "n:Free", "n:Size", "k:Used"))
    return f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>'


def _topics(seen: Overview, search: str) -> str:
    topics = seen.topics
    note = f"{topics.found:,} topics, {size(topics.size_bytes)}" + (f" with {search!r} in the name" if search else "")
    ask = (
        '<form action="/" method="get" role="search"><input type="search" name="q" maxlength="249" '
        f'aria-label="part of a topic name" placeholder="part of a name" value="{escape(search)}">'
        "<button>Find</button></form>"
    )
    return "".join((
        _heading("Topics", note),
        ask if topics.found > len(topics.rows) or topics.found > 20 or search else "",
        _topic_table(topics.rows, search),
        _pages("/", {"q": search} if search else {}, topics.before, len(topics.rows), topics.found),
    ))  # fmt: skip


def _topic_table(rows: Sequence[TopicRow], search: str) -> str:
    if not rows:
        told = "no topic has that in its name" if search else "no topics yet: produce to one, and it is made"
        return f'<div class="scroll"><p class="empty">{told}</p></div>'
    lines = []
    for row in rows:
        link = f"/topics/{quote(row.name, safe='')}"
        offsets = f"{row.start:,} to {row.end:,}" if row.partitions == 1 else f'<a class="soft" href="{link}">each</a>'
        cells = _cells((f"{row.records:,}", size(row.size_bytes)), ("n", "n"))
        lines.append(
            f'<tr><td><a href="{link}">{escape(row.name)}</a></td><td class="n">{row.partitions:,}</td>'
            f'<td class="n">{offsets}</td>{cells}</tr>'
        )
    head = _head(("Name", "n:Partitions", "n:Offsets", "n:Records", "n:Size"))
    return f'<div class="scroll"><table>{head}{"".join(lines)}</table></div>'


def _warnings(warnings: Sequence[Warned]) -> str:
    rows = (
        (warned.at.partition(".")[0].replace("T", " ").removesuffix("Z"), warned.level, warned.sentence, warned.facts)
        for warned in reversed(warnings)
    )
    return _table(("k:When (UTC)", "k:Level", "What", "Facts"), rows, empty="none")


def _pages(path: str, query: dict[str, str], first: int, shown: int, found: int) -> str:
    links = []
    if first > 0:
        before = max(0, first - PAGE_ROWS)
        links.append(f'<a href="{escape(path)}?{escape(urlencode({**query, "from": before}))}">earlier</a>')
    if first + shown < found:
        links.append(f'<a href="{escape(path)}?{escape(urlencode({**query, "from": first + shown}))}">more</a>')
    told = f'<span class="soft">{first + 1:,} to {first + shown:,} of {found:,}</span>' if links and shown else ""
    return f"<nav>{told}{''.join(links)}</nav>" if links else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str) -> str:
    classes = [_class(title) for title in head]
    lines = "".join(f"<tr>{_cells(row, classes)}</tr>" for row in rows)
    if not lines:
        return f'<div class="scroll"><p class="empty">{escape(empty)}</p></div>'
    return f'<div class="scroll"><table>{_head(head)}{lines}</table></div>'


def _head(titles: Sequence[str]) -> str:
    cells = (f'<th scope="col" class="{_class(title)}">{escape(title.rpartition(":")[2])}</th>' for title in titles)
    return f"<tr>{''.join(cells)}</tr>"


def _class(title: str) -> str:
    """`n:Size` is a column of numbers, `k:When` one that is kept on a line."""
    return title.rpartition(":")[0]


def _cells(values: Iterable[str], classes: Iterable[str]) -> str:
    """Table cells; values become markup here (HT2)."""
    return "".join(
        f'<td class="{name}">{escape(value)}</td>' if name else f"<td>{escape(value)}</td>"
        for value, name in zip(values, classes, strict=True)
    )


def _moment(ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
