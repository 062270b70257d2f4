"""Settings of routing: what brokers do with clients that others should serve."""

from dray.config import Section


class RoutingSettings(Section):
    """Who serves whom. Any broker can serve anything: this is about cost, never about what is right."""

    enforce_owner: bool = False
    """Send clients to the broker that they were told of: whoever asks another one about a partition is told
    NOT_LEADER_OR_FOLLOWER and who leads, about a group NOT_COORDINATOR. Off: whoever is asked serves."""
