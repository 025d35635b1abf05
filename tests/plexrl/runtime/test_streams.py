"""Messages between scheduler and workers are not kept back."""

from distributed.batched import BatchedSend

from plexrl.runtime.streams import send_at_once


def intervals(dask_scheduler):
    for stream in dask_scheduler.stream_comms.values():
        send_at_once(stream)
    return [stream.interval for stream in dask_scheduler.stream_comms.values()]


def test_dask_keeps_messages_back_and_we_do_not(dask_client):
    assert BatchedSend("5ms", loop=dask_client.loop).interval > 0
    found = dask_client.run_on_scheduler(intervals)
    assert found == [0, 0]
    assert dask_client.submit(sum, [1, 2]).result() == 3
