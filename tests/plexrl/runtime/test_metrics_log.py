from plexrl.runtime.metrics_log import MetricsLog
from solver.trace import IterationRecord


def record(iteration, loss, job="job"):
    return IterationRecord(job, iteration, 1.0 * iteration, 2.0 * iteration, (("loss", loss),))


def log_of(store):
    store.mkdir(exist_ok=True)
    return MetricsLog(store)


def test_what_was_logged_is_read_back_by_another_life(tmp_path):
    log = log_of(tmp_path)
    log.append(record(0, 0.5))
    log.append(record(1, 0.25))
    log.append(record(0, 0.125, "other"))
    assert MetricsLog(tmp_path).read("job") == {0: record(0, 0.5), 1: record(1, 0.25)}
    assert MetricsLog(tmp_path).read("nobody") == {}


def test_a_replayed_iteration_counts_once(tmp_path):
    log = log_of(tmp_path)
    for index, loss in ((0, 0.5), (1, 0.25), (1, 0.125)):
        log.append(record(index, loss))
    assert log.read("job")[1] == record(1, 0.125)


def test_records_wait_for_a_store_that_is_away(tmp_path):
    store = tmp_path / "store"
    log = log_of(store)
    store.rename(tmp_path / "away")
    log.append(record(0, 0.5))
    assert not store.exists()
    (tmp_path / "away").rename(store)
    log.append(record(1, 0.25))
    assert list(log.read("job")) == [0, 1]


def test_a_new_job_begins_with_an_empty_log(tmp_path):
    log = log_of(tmp_path)
    log.append(record(0, 0.5))
    log.forget("job")
    log.forget("job")
    assert log.read("job") == {}
