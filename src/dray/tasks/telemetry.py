"""Names of what is told about long-lived work."""

from typing import Final

from dray import telemetry

DIED: Final = telemetry.event("tasks.died", "long-lived work of this process failed; it is started again: report a bug")

DEATHS: Final = telemetry.counter(
    "dray_task_deaths_total", "how often long-lived work failed and was started again", ["task"]
)
