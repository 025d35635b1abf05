"""What is known of vLLM without loading it; runs whether it is installed or not."""

from types import SimpleNamespace

import pytest

from plexrl.engines import vllm_settings
from plexrl.engines.network import Network
from plexrl.engines.protocol import ModelSource
from plexrl.engines.vllm_names import WeightNames
from plexrl.errors import InputError, ModelFolderError


def config(**changes):
    fields = {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 96,
    }
    return SimpleNamespace(**{**fields, **changes})


def test_absence_is_the_users_error_with_the_command_that_ends_it(monkeypatch):
    monkeypatch.setattr(vllm_settings, "is_installed", lambda: False)
    with pytest.raises(InputError, match=r"model 'a' asks.*requirements/vllm-cpu\.txt"):
        vllm_settings.check_installed("model 'a'")


def test_the_cache_holds_full_contexts_of_all_rows_where_that_is_little():
    # Keys and values of 2 layers, 1 head of 32, float32; one block of 32 more than the context.
    token_bytes = 2 * 2 * 32 * 4
    assert vllm_settings.cpu_cache_bytes(config(), 96) == 256 * token_bytes * 128


def test_the_cache_is_bounded_but_always_holds_two_full_contexts():
    big = config(hidden_size=1024, num_hidden_layers=32, num_key_value_heads=2)
    assert vllm_settings.cpu_cache_bytes(big, 1024) == vllm_settings.MAX_CPU_CACHE_BYTES
    token_bytes = 2 * 32 * 2 * 512 * 4
    assert vllm_settings.cpu_cache_bytes(big, 8192) == 2 * token_bytes * (8192 + 32)


def test_settings_of_a_gpu_have_sleep_mode_and_leave_room_for_torch():
    arguments = vllm_settings.engine_arguments(config(), is_on_gpu=True)
    assert arguments["enable_sleep_mode"]
    assert arguments["gpu_memory_utilization"] < 0.5
    assert "kv_cache_memory_bytes" not in arguments


def test_settings_of_a_cpu_have_no_sleep_mode_which_vllm_refuses_there():
    arguments = vllm_settings.engine_arguments(config(), is_on_gpu=False)
    assert "enable_sleep_mode" not in arguments
    assert (arguments["dtype"], arguments["block_size"] % 32) == ("float32", 0)


def test_logprobs_are_asked_of_the_distribution_drawn_from():
    for is_on_gpu in (True, False):
        arguments = vllm_settings.engine_arguments(config(), is_on_gpu=is_on_gpu)
        assert arguments["logprobs_mode"] == "processed_logprobs"


def test_one_core_is_never_pinned_and_the_engine_is_one_process():
    assert vllm_settings.ENVIRONMENT["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert vllm_settings.ENVIRONMENT["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"


def test_weights_lie_where_the_torch_engine_puts_them(base_folder):
    import torch

    names = WeightNames(base_folder)
    for is_trainable in (True, False):
        network = Network(ModelSource(base_folder, is_trainable), torch.device("cpu"))
        slots = names.layout.slots
        assert network.layout.slots[: len(slots)] == slots
        assert network.weights_nbytes == names.layout.nbytes


def test_a_tied_weight_is_given_under_all_its_names(base_folder):
    import torch

    names = WeightNames(base_folder)
    flat = torch.zeros(names.layout.nbytes, dtype=torch.uint8)
    weights = dict(names.weights(flat))
    tied = weights["lm_head.weight"], weights["model.embed_tokens.weight"]
    assert tied[0].data_ptr() == tied[1].data_ptr()


def test_a_folder_without_a_decoder_only_model_is_refused(tmp_path):
    with pytest.raises(ModelFolderError, match="does not exist"):
        WeightNames(str(tmp_path / "nowhere"))


def test_prompts_are_read_whole_on_a_cpu_whose_generators_cannot_go_back():
    arguments = vllm_settings.engine_arguments(config(), is_on_gpu=False)
    assert arguments["enable_chunked_prefill"] is False
    assert "enable_chunked_prefill" not in vllm_settings.engine_arguments(config(), is_on_gpu=True)
