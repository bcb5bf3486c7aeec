"""The status line and the totals of `consume`."""

from rabbitdelay.cli.output.worker_status import status_line, summary
from rabbitdelay.core.work.stats import StatsRecorder
from rabbitdelay.engine.work.base_worker import WorkerStats


def stats(recorder: StatsRecorder) -> WorkerStats:
    return WorkerStats(recorder.counts_at(1), 0, 0)


def test_lateness_is_shown_once_a_job_is_finished() -> None:
    recorder = StatsRecorder(now=0)
    recorder.buried()
    assert summary(stats(recorder)) == "0 finished, 0 released, 1 buried, 0 deleted"
    assert "late" not in status_line(stats(recorder), "0").plain
    recorder.finished(lateness_ms=7, now=0)
    assert summary(stats(recorder)).endswith("; late p50 7 ms, p99 7 ms")
    assert "late p50 7 p99 7 ms" in status_line(stats(recorder), "0").plain
