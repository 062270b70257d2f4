"""The zone of a client, as its client id names it.

A client id is a list of pairs, `zone_id=a,team=b`. Those who come from another
system bring its word for the same: `ws_az` and `diskless_az` in such a list,
and `automq_az` in one of its own, which is joined by `&`.

Invariants
    RG5  Any client id has a zone, perhaps none (""): the first pair that names
         one counts, spaces around its value do not, and whatever else is in
         the id never fails a request.
"""

import re
from typing import Final

_NAMED: Final = re.compile(r"(?:^|,)\s*(?:zone_id|ws_az|diskless_az)\s*=([^,]*)" r"|(?:^|[,&])\s*automq_az\s*=([^,&]*)")


def zone_of(client_id: str | None) -> str:
    """The zone that a client id names; empty: none."""
    if client_id is None or "=" not in client_id:
        return ""
    named = (found.group(found.lastindex or 0).strip() for found in _NAMED.finditer(client_id))
    return next(filter(None, named), "")  # RG5
