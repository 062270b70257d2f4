"""The Spark session of a compactor: started with the first job, stopped when nothing was due for a while."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from pyspark.sql import SparkSession

from dray.clock import Clock
from dray.errors import DrayError, Unavailable
from dray.pipeline.compactor import telemetry
from dray.pipeline.compactor.job import pack, run_job
from dray.pipeline.compactor.worker import FileJob, JobOutcome
from dray.pipeline.connecting import SCHEME, connect_session
from dray.pipeline.parallelism import cores_of
from dray.pipeline.session import build_session, end_session
from dray.telemetry import logger

CONFIG: Final = {"spark.driver.memory": "512m", "spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "16"}
UNSEEN_CORES: Final = 2
T = TypeVar("T")
_SECOND_NS: Final = 1_000_000_000


class JobFailed(Unavailable):
    """Spark did not run the job to its end: the next cycle tries again."""


class SparkJobs:
    """Runs jobs, one at a time. It blocks."""

    def __init__(self, address: str, master: str, clock: Clock) -> None:
        self.address = address
        self._master = master
        self._clock = clock
        self._session: SparkSession | None = None
        self._used_ns = clock.boot_ns()

    def __call__(self, jobs: Sequence[FileJob]) -> list[JobOutcome]:
        """Write the files of jobs.

        Raises:
            JobFailed: and what Spark said.
        """
        return self.use(lambda session: run_job(session, self.address, pack(jobs, self._cores(session))))

    def _cores(self, session: SparkSession) -> int:
        """The tasks that run at a time: a cluster tells the cores of its executors, a client does not see them."""
        told = cores_of(self._master, {})
        if told is None:
            told = UNSEEN_CORES if self._master.startswith(SCHEME) else session.sparkContext.defaultParallelism
        return told

    def use(self, work: Callable[[SparkSession], T]) -> T:
        """Do something with the session, which is started for it if need be.

        Raises:
            JobFailed: and what Spark said.
        """
        session = self._started()
        try:
            return work(session)
        except DrayError:
            raise
        except Exception as error:  # Spark and py4j raise many kinds, and each means the same here
            self.stop()
            raise JobFailed("Spark failed", reason=f"{type(error).__name__}: {error}"[:500]) from error
        finally:
            self._used_ns = self._clock.boot_ns()

    def progress(self) -> tuple[int, int]:
        """Tasks of the running job that are done, and all of them."""
        session = self._session
        if session is None or self._master.startswith(SCHEME):  # a client sees only its rows
            return 0, 0
        tracker = session.sparkContext.statusTracker()
        infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [info for info in infos if info is not None]
        return sum(info.numCompletedTasks for info in known), sum(info.numTasks for info in known)

    @property
    def runs(self) -> bool:
        return self._session is not None

    def idle_s(self) -> float:
        """Since when no job has run."""
        return (self._clock.boot_ns() - self._used_ns) / _SECOND_NS

    def stop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            end_session(session)
            logger().info(telemetry.SPARK_STOPPED)

    def _started(self) -> SparkSession:
        if self._session is None:
            if self._master.startswith(SCHEME):
                self._session = connect_session(self._master)
            else:
                self._session = build_session("dray compactor", master=self._master, config=CONFIG)
            logger().info(telemetry.SPARK_STARTED, master=self._master.partition(";")[0])  # a token may follow
        return self._session
