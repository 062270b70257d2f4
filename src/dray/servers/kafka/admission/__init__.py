"""What a connection may take, who waits, and who is cut.

A client meets these rules in the order in which its request goes. Where it
waits, it is not cut for having waited; it is cut where it stands still.

1. **The door** (`door.py`). A connection beyond `max_connections`, or beyond
   those of one address, is closed at once. Nothing waits.

2. **Its own allowance** (`Allowance` in `settings.py`). A stranger may send
   little, who has sent a valid request may send more: a frame above the
   allowance closes the connection. Who has `inflight_requests` unanswered
   requests, or `inflight_bytes` of them, is not read from until one is
   answered. This is the client's own doing, so it stands in no line.

3. **The store** (`relief.py`). While too much waits to be stored, who has
   produced is not read from; everybody else is. On relief they go on one by
   one, who waited longest first (SV2).

4. **The memory of all** (`budget.py`). Requests and receive buffers are charged.
   Over the limit whoever has a large request waits in line, in the order of
   arrival; small requests have a reserve and a line of their own; one half
   request at a time may pass, so that something finishes (KP9, KP10, KP18).

   Two more lines are met later, inside the services that work for a request.
   `dray.produce.unpacking`: one compressed batch of a connection at a time is
   on a thread, connections take turns (KP21, KP22). `dray.fetch.line`: what a
   fetch will send is charged before it is read and until the client has taken
   it; it is given less, then waits, after 20 s it gets an answer without
   records (F14, F15).

5. **Patience** (`patience.py`). Once a second every connection is looked at.
   Cut is who stands still, never who is slow: no valid request in the first
   30 s, no request for ten minutes, a half request that does not come on, an
   answer that is not taken. While others wait, what stands in their way is
   looked at more strictly: half requests are shed, the quietest first, until
   the memory of all is below its limit again (KP19); and who takes its answer
   slower than `slowest_rate` is cut (KP16).

A connection that is not read from costs others nothing: its bytes wait in its
own socket. The numbers are settings of the Kafka port; ADR-0020 says why.
"""
