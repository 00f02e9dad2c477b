"""Bad input: a sentence each, and both states as they were."""

import pytest
import torch
from gdn import FLAT, INTERLEAVED, Problem, bits
from torch._subclasses.fake_tensor import FakeTensorMode

QKVZ, BA = INTERLEAVED["qkvz_layout"], INTERLEAVED["ba_layout"]


def refused(problem, words, layout="interleaved", shows_in_shapes=True, **changes):
    conv, state = changes.get("conv_state"), changes.get("state")
    conv = problem.window.clone() if conv is None else conv
    state = problem.state.transpose(-1, -2).contiguous() if state is None else state
    before = conv.clone(), state.clone()
    with pytest.raises(RuntimeError, match=words):
        problem.call(layout, **(changes | {"conv_state": conv, "state": state}))
    assert torch.equal(bits(conv), bits(before[0])) and torch.equal(bits(state), bits(before[1]))
    if shows_in_shapes:  # Then what traces a model hears of it too.
        with FakeTensorMode(allow_non_fake_inputs=True), pytest.raises(RuntimeError, match=words):
            problem.call(layout, **(changes | {"conv_state": conv, "state": state}))


def test_columns_that_the_layout_does_not_have():
    refused(
        Problem(H=16, G=2, K=128, V=128, batch=1),
        r"gdn_decode: qkvz has 16384 columns; the layout\n    H \(q=K \| k=K \| v=G V \| z=G V\)   with "
        r"H=16 G=2 K=128 V=128\n  has 12288 columns. With G=3 it would have 16384: is num_v_heads 48\?",
        qkvz=torch.zeros(1, 1, 16384).bfloat16(),
    )
    refused(Problem(), "ba has 13 columns", ba=torch.zeros(2, 1, 13).bfloat16())
    refused(  # One group is no other answer: it has no half.
        Problem(G=2),
        r"(?s)ba has 18 columns; .* has 9 columns\. With G=4 it would have 18: is num_v_heads 8\?",
        ba=torch.zeros(2, 1, 18).bfloat16(),
        ba_layout="H (b=G | a=G) | _=n:G/2",
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"qkvz_layout": "H (q=K | k=K | z=G V | _=G V)"}, "no layout names v: qkvz_layout is"),
        ({"qkvz_layout": "H (_=K | k=K | v=G V | z=G V)"}, "no layout names q: qkvz_layout is"),
        ({"qkvz_layout": "H (q=K | _=K | v=G V | z=G V)"}, "no layout names k: qkvz_layout is"),
        ({"ba_layout": "H (_=G | a=G)"}, "no layout names b: .* ba_layout is"),
        ({"ba_layout": "H (b=G | _=G)"}, "no layout names a: .* ba_layout is"),
        (
            {"qkvz_layout": "qwen3-next/kqvz"},
            "no layout named qwen3-next/kqvz; there are qwen3-next/q",
        ),
        ({"qkvz_layout": "vllm/state"}, "qkvz_layout .*names a segment state"),
        ({"qkvz_layout": ""}, "qkvz_layout: layout: "),
        ({"qkvz_layout": "H (q=K | k=K | v=G V | x=G V)"}, "names a segment x"),
        ({"ba_layout": "H (b=G | q=G)"}, "ba_layout .* names q; q, k and v must be in qkvz"),
        ({"ba_layout": "H (b=G | z=G)"}, "names z, which qkvz_layout has named already"),
        ({"ba_layout": "H (b=G | b=G)"}, "ba_layout: .*a segment b already"),
        ({"qkvz_layout": "H (q=K | k=K | v=V | z=G V)"}, r"holds 16 elements of v .*there are 48"),
        (
            {"qkvz_layout": "k=H K | v=HV V | z=HV V | q=H:1 K:32"},
            r"has q\[H=1, K=32\]; its H must be 2",
        ),
        (
            {"qkvz_layout": "q=H K | k=H K | v=HV:3 V:16 | z=HV V"},
            r"has v\[HV=3, V=16\]; its HV must be 6",
        ),
        ({"ba_layout": "b=H:3 G:2 | a=HV"}, r"has b\[H=3, G=2\]; its H must be 2"),
        (
            {"qkvz_layout": "H (q=V | k=K | v=G V | z=G V)"},
            "gives q an axis V; its axes are H and K",
        ),
        (
            {"qkvz_layout": "H (q=K | k=K | v=G V | z=G V"},
            r"expected .*found the end\.\n(.*\n) +\^",
        ),
        ({"qkvz_layout": "q=K/4 H K%4 | k=H K | v=HV V | z=HV V"}, "splits the axis K of q"),
        ({"qkvz_layout": "N (q=K | k=K | v=G V | z=G V)"}, "the size N is not given"),
        (
            {"qkvz_layout": "H (q=K | k=K | v=G V | _=G V)"},
            "no layout names z, which gates the norm",
        ),
        ({"ba_layout": None}, "ba is given, and ba_layout is not"),
        ({"z_layout": "z=HV V"}, "z_layout is given, and z is not"),
        ({"norm_eps": None}, "norm_weight is given, and norm_eps is not"),
        ({"gate_activation": None}, "norm_weight is given, and gate_activation is not"),
        ({"gate_activation": "gelu"}, 'gate_activation is "gelu"; it must be "silu" or "sigmoid"'),
        ({"padding": "negative"}, "padding is given, and state_indices is not"),
        ({"state_indices": torch.tensor([0, 1])}, "state_indices is given, and padding is not"),
        ({"num_v_heads": 4}, "num_v_heads is 4; HV is 6"),
        ({"head_v_dim": 9}, r"head_v_dim is 9; V is 8 \(norm_weight is \[8\]\)"),
        ({"head_k_dim": 257}, r"head_k_dim is 257; it must be an integer in \[1, 256\]"),
        ({"num_k_heads": 4}, "num_v_heads is 6; it must be a multiple of num_k_heads, 4"),
        ({"rounding": "bf16"}, 'rounding is "bf16"'),
        ({"state_layout": "[HV,K,V]"}, r'must be \[2, 6, 16, 8\]\. Is it "\[HV,V,K\]"\?'),
        (
            {"write_indices": torch.tensor([0, 1])},
            "write_indices are given, and state_indices are not",
        ),
        (
            {"num_accepted": torch.tensor([1, 1])},
            "num_accepted is given; it needs state_indices of shape",
        ),
        ({"qkvz": torch.zeros(224).bfloat16()}, "ba is .*its leading dimensions"),
    ],
    ids=lambda value: str(next(iter(value.items())))[:50] if isinstance(value, dict) else "",
)
def test_arguments_that_do_not_fit(changes, words):
    refused(Problem(), words, **changes)


def test_states_that_do_not_fit():
    problem = Problem()
    shape = (2, 6, 8, 16)
    refused(
        problem,
        "state is float64; it must be float32, float16 or bfloat16",
        state=torch.zeros(shape).double(),
    )
    refused(problem, "A_log has 6 elements; HV is 3", state=torch.zeros(2, 3, 8, 16))
    refused(
        problem,
        r"the last dimension of state .* has stride 2; it must be 1 .*: state is not contiguous behind "
        r"its first dimension. It is written in place",
        state=torch.zeros(2, 6, 8, 32)[..., ::2],
    )
    refused(
        problem, r"state .*has stride 32; it must be 16", state=torch.zeros(2, 6, 8, 32)[..., :16]
    )
    refused(problem, "state is int32; it must be float32, float16", state=torch.zeros(shape).int())
    refused(problem, "state has 3 dimensions .*must have 4", state=torch.zeros(12, 8, 16))
    refused(problem, "several elements are one", state=torch.zeros(1, 6, 8, 16).expand(shape))
    refused(
        problem,
        "conv_state is float32; it must have the dtype of qkvz",
        conv_state=problem.window.float(),
    )
    refused(
        problem,
        "conv_state holds 2 inputs of each channel; 4 taps need 3",
        conv_state=problem.window[..., 1:].clone(),
    )
    one_slot = torch.zeros(1, 6, 8, 16)
    refused(
        problem, "state has 1 slots for 2 sequences", state=one_slot, conv_state=problem.window[:1].clone()
    )  # fmt: skip
    indices = torch.tensor([[0], [1]])
    refused(
        Problem(tokens=2), "must have a slot for each of the 2 tokens", state_indices=indices,
        padding="negative", num_accepted=torch.tensor([1, 1]),
    )  # fmt: skip
    refused(
        Problem(tokens=2), "2 speculative tokens and 4 taps need 4", state_indices=indices.expand(2, 2),
        padding="negative", num_accepted=torch.tensor([1, 1]),
    )  # fmt: skip


@pytest.mark.parametrize("layout", ["interleaved", "flat"])
@pytest.mark.parametrize("order", ["[HV,V,K]", "[HV,K,V]"])
def test_every_pair_of_sizes_that_are_exchanged_is_seen(layout, order):
    """K and V, H and HV: where the element counts do not give it away, the shapes of the weights do."""
    problem = Problem(H=2, G=3, K=16, V=8)
    for changes in (
        {"head_k_dim": 8, "head_v_dim": 16},
        {"num_k_heads": 6, "num_v_heads": 2},
        {"num_k_heads": 3},
        {"head_k_dim": 8},
    ):
        with pytest.raises(RuntimeError, match=r"^gdn_decode: "):
            problem.call(layout, state_layout=order, **changes)


def test_indices_beyond_the_pool():
    for bad in (2, 2**31 - 1, 2**40):
        words = rf"state_indices\[1\] is {bad}; the pool has 2 slots, 0 to 1"
        indices = torch.tensor([0, bad])
        refused(Problem(), words, shows_in_shapes=False, state_indices=indices, padding="negative")


def test_written_tensors_share_no_memory():
    problem = Problem(dtype=torch.float32)
    memory = torch.zeros(2, 6 * 8 * 16 + 3 * problem.channels)
    state = memory[:, : 6 * 8 * 16].unflatten(1, (6, 8, 16))
    conv = memory[:, 6 * 8 * 16 :].unflatten(1, (problem.channels, 3))
    problem.call(conv_state=conv, state=state)  # Side by side in one page is fine.
    overlap = memory[:, 6 * 8 * 16 - 8 : -8].unflatten(1, (problem.channels, 3))
    refused(
        problem,
        "conv_state is written in place, and state overlaps",
        shows_in_shapes=False,
        conv_state=overlap,
        state=state,
    )
    rows = problem.packed("flat")[0]
    both = torch.zeros(2 * problem.channels * 3)
    rows = both[: rows.numel()].view_as(rows).copy_(rows)
    conv = both.view(2, problem.channels, 3)
    words = "conv_state is written in place, and qkvz"
    refused(problem, words, "flat", shows_in_shapes=False, qkvz=rows, conv_state=conv)


def test_gradients_are_refused():
    for name in ("qkvz", "state"):
        problem = Problem(dtype=torch.float32)
        rows = problem.packed("interleaved")[0]
        if name == "qkvz":
            changes = {"qkvz": rows.requires_grad_()}
        else:
            changes = {"state": problem.state.transpose(-1, -2).contiguous().requires_grad_()}
        with pytest.raises(RuntimeError, match="gdn_decode: a gradient is required"):
            problem.call(**changes)
        with torch.no_grad():
            problem.call(**changes)


def test_layouts_are_remembered():
    """A second call with other sizes or another layout is not answered with the first one's."""
    for problem in (Problem(H=2, G=3), Problem(H=3, G=2), Problem(H=6, G=1)):
        for layout in (INTERLEAVED, FLAT):
            name = "flat" if layout is FLAT else "interleaved"
            out = problem.call(name)[0]
            want = problem.expected().out
            assert (out.double().view(want.shape) - want).abs().max() < 0.1
