"""One vLLM engine process for all tests of this folder; starting one takes ten seconds."""

from dataclasses import dataclass, replace

import pytest

from plexrl.engines import vllm_settings
from plexrl.engines.protocol import EngineKind, ModelSource
from plexrl.engines.remote import EngineProcess
from plexrl.engines.torch_engine import TorchEngine
from plexrl.state.arena import Arena
from tests.plexrl.engines.conformance import RemoteRig

TOLERANCE = 1e-5
"""Nats; sums depend on which rows are computed together."""


def pytest_collection_modifyitems(items):
    here = __name__.rpartition(".")[0].replace(".", "/")
    for item in items:
        if here in str(item.path):
            item.add_marker(pytest.mark.vllm)
            item.add_marker(pytest.mark.slow)
            if not vllm_settings.is_installed():
                item.add_marker(
                    pytest.mark.skip(reason=f"no vLLM here: {vllm_settings.INSTALL_CPU}")
                )


@dataclass
class VLLMRig(RemoteRig):
    """Version 0 comes from a torch engine, whose states vLLM shares."""

    torch: TorchEngine = None

    def new_arena(self):
        return Arena(self.torch.layout().nbytes)

    def reset(self, folder=None):
        folder = folder or self.folder
        if folder not in self.arenas:
            self.arenas[folder] = self.new_arena()
            self.torch.read_folder(folder, self.arenas[folder].view)
        self.torch.load(self.arenas[folder].view)
        self.engine.load(self.arenas[folder])
        return self.arenas[folder]

    def same(self, found, expected):
        def drawn(samples):
            return [replace(sample, logprobs=()) for sample in samples]

        assert drawn(found) == drawn(expected)
        for one, other in zip(found, expected, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=TOLERANCE)
        return True


@pytest.fixture(scope="session")
def rig(base_folder, other_folder):
    torch_engine = TorchEngine(ModelSource(base_folder), "cpu")
    with EngineProcess(ModelSource(base_folder, kind=EngineKind.VLLM)) as engine:
        yield VLLMRig(engine, base_folder, other_folder, lambda arena: arena, torch=torch_engine)
