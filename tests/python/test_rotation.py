"""The sets of inputs that timed calls rotate over."""

import torch

from truefuse.rotation import Sets, moved


def test_sets_hold_twice_the_cache_and_other_contents(stateful_context):
    sets = Sets(stateful_context, (64, 128))
    assert sets.cold and len(sets) * sets.bytes_moved >= 2 * (1 << 18)
    first, second = (sets.inputs[number]["x"] for number in range(2))
    assert first.data_ptr() != second.data_ptr() and not torch.equal(first, second)


def test_contents_move_on_and_the_results_with_them(stateful_context):
    sets = Sets(stateful_context, (64, 128))
    before = [one["x"].clone() for one in sets.inputs]
    where = [one["x"].data_ptr() for one in sets.inputs]
    version = sets.inputs[1]["x"]._version
    sets.move_on()
    assert [one["x"].data_ptr() for one in sets.inputs] == where
    assert sets.inputs[1]["x"]._version == version
    for number, one in enumerate(sets.inputs):
        assert torch.equal(one["x"], before[number - 1])
        sets.restore(number)
        found = stateful_context.candidate(one, {})
        assert all(torch.equal(found[k], sets.expected[number][k]) for k in found)


def test_an_expanded_input_is_read_once(stateful_context):
    wide = {"x": torch.ones(1).expand(1000)}
    assert moved(wide, {"out": torch.ones(1000)}, ()) == 4 + 4000
