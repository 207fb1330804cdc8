import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

from hagane.zoo import networks

SIZES = {"batch": 2, "sequence": 11}
SMALL = {
    "bert": {"layers": 2, "width": 64, "heads": 4, "inner": 128, "vocabulary": 100},
    "dlrm": {},
    "mlp": {},
    "mobilenet_v2": {"width": 0.5, "image": 64},
    "resnet50": {"blocks": (1, 2, 1, 1), "width": 16, "image": 64},
    "unet": {},
}
PUBLISHED_PARAMETERS = {"resnet50": 25_557_032, "mobilenet_v2": 3_504_872}


def feeds(model, sizes=SIZES):
    """Seeded inputs; integers fit every table, and the mask drops the last tokens of the second row."""
    rng = np.random.default_rng(0)
    made = {}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = [dim.dim_value or sizes[dim.dim_param] for dim in dims]
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            made[value.name] = rng.standard_normal(shape).astype(np.float32)
        elif value.name == "attention_mask":
            made[value.name] = np.ones(shape, np.int64)
            made[value.name][-1, -4:] = 0
        else:
            made[value.name] = rng.integers(0, 2, shape)
    return made


def run_all(model, feed):
    """The values of all nodes."""
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    known = {output.name for output in probe.graph.output}
    names = [name for node in probe.graph.node for name in node.output if name not in known]
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = onnxruntime.InferenceSession(probe.SerializeToString())
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feed), strict=True))


@pytest.mark.parametrize("name", networks.__all__)
def test_values_stay_near_one(name):
    model = getattr(networks, name)(**SMALL[name])
    for value, array in run_all(model, feeds(model)).items():
        if array.dtype == np.float32 and "mask" not in value and "attention/Add" not in value:
            assert np.isfinite(array).all(), value
            assert np.sqrt(np.mean(np.square(array))) < 20, value


@pytest.mark.parametrize("name", networks.__all__)
def test_the_declared_output_shapes_are_those_computed(name):
    model = getattr(networks, name)(**SMALL[name])
    values = run_all(model, feeds(model))
    for output in model.graph.output:
        declared = [d.dim_value or SIZES[d.dim_param] for d in output.type.tensor_type.shape.dim]
        assert list(values[output.name].shape) == declared


@pytest.mark.parametrize("name", networks.__all__)
def test_the_same_options_give_the_same_bytes_and_another_seed_other_weights(name):
    def write(**more):
        return getattr(networks, name)(**SMALL[name], **more).SerializeToString(deterministic=True)

    assert write() == write()
    assert write() != write(seed=1)


@pytest.mark.parametrize("name", networks.__all__)
def test_the_batch_can_be_constant(name):
    model = getattr(networks, name)(**SMALL[name], batch=3)
    assert all(value.type.tensor_type.shape.dim[0].dim_value == 3 for value in model.graph.input)
    run_all(model, feeds(model))


@pytest.mark.parametrize("name", sorted(PUBLISHED_PARAMETERS))
def test_the_default_has_the_published_number_of_trained_parameters(name):
    weights = getattr(networks, name)().graph.initializer
    trained = [w for w in weights if w.dims and not w.name.endswith(("running_mean", "running_var"))]
    assert sum(int(np.prod(weight.dims)) for weight in trained) == PUBLISHED_PARAMETERS[name]


def test_weights_are_the_ones_of_every_earlier_run():
    model = networks.mlp(layers=2, width=2, num_inputs=2, num_outputs=1)
    weight = onnx.numpy_helper.to_array(model.graph.initializer[0])
    expected = np.array([[-0.77640963, 1.3359882], [-0.25850308, -1.4179938]], np.float32)
    np.testing.assert_array_equal(weight, expected)


def test_batch_norms_stay_nodes_of_their_own():
    ops = [node.op_type for node in networks.resnet50().graph.node]
    assert ops.count("BatchNormalization") == ops.count("Conv") == 53


def test_padding_tokens_do_not_change_the_others():
    model = networks.bert(**SMALL["bert"])
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feed = feeds(model)
    other = dict(feed, input_ids=feed["input_ids"].copy())
    other["input_ids"][-1, -4:] = 7
    (before, _), (after, _) = session.run(None, feed), session.run(None, other)
    np.testing.assert_array_equal(before[-1, :-4], after[-1, :-4])


def test_the_unet_takes_other_image_sizes():
    model = networks.unet(height="height", image_width="width")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for height, width in ((32, 48), (64, 16)):
        sizes = {"batch": 1, "height": height, "width": width}
        (noise,) = session.run(None, feeds(model, sizes))
        assert noise.shape == (1, 3, height, width)
