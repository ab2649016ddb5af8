"""torchaudio: features, filters, resampling, alignment, losses and tiny models on npu.

Its wheel is linked against CUDA's libraries: the operators of its binaries are this build's own (docs/libraries.md).
Reading and writing files needs torchcodec, which is linked against CUDA, too.
"""

import torchaudio
from side_by_side import check, main, randint, randn, train
from torch.nn import functional as nnf
from torchaudio import functional as F, transforms as T

import torch

RATE = 8000


def wave(device: str, *shape: int, seed: int = 0) -> torch.Tensor:
    return (randn(*(shape or (2, 4000)), seed=seed) * 0.1).to(device)


@check("spectrograms: power, mel, MFCC, LFCC, inverse, Griffin-Lim")
def features(device):
    x = wave(device)
    mel = {"n_fft": 256, "n_mels": 20}
    spectrum = T.Spectrogram(256, power=None).to(device)(x)
    return [
        T.Spectrogram(256).to(device)(x),
        T.MelSpectrogram(RATE, **mel).to(device)(x),
        T.MFCC(RATE, n_mfcc=12, melkwargs=mel).to(device)(x),
        T.LFCC(RATE, n_filter=20, n_lfcc=12, speckwargs={"n_fft": 256}).to(device)(x),
        T.AmplitudeToDB().to(device)(T.Spectrogram(256).to(device)(x)),
        T.InverseSpectrogram(256).to(device)(spectrum, 4000),
        T.GriffinLim(256, n_iter=4, rand_init=False).to(device)(spectrum.abs().square()),
        T.SpectralCentroid(RATE, n_fft=256).to(device)(x),
        torch.view_as_real(T.TimeStretch(n_freq=129, hop_length=128, fixed_rate=1.3).to(device)(spectrum)),
    ]


@check("resampling, pitch, speed, convolution, delta, preemphasis, noise, mu-law", tolerance=1e-3)
def signals(device):
    x = wave(device)
    coded = F.mu_law_encoding(x, 256)
    return [
        T.Resample(RATE, 5000).to(device)(x),
        T.PitchShift(RATE, 12, n_fft=256).to(device)(x),
        F.speed(x, RATE, 1.2)[0],
        F.convolve(x, wave(device, 2, 100, seed=1)),
        F.fftconvolve(x, wave(device, 2, 100, seed=1)),
        F.compute_deltas(x),
        F.preemphasis(x),
        F.add_noise(x, wave(device, seed=2), torch.tensor([3.0, 10.0], device=device)),
        F.mu_law_decoding(coded, 256),
        F.amplitude_to_DB(x.square(), 10.0, 1e-10, 0.0),
        T.Fade(100, 200)(x),
        T.Vol(0.5)(x),
        F.sliding_window_cmn(x.reshape(2, 200, 20), 60),
    ]


@check("filters: biquads, lfilter with gradients, filtfilt, phaser, loudness", tolerance=1e-3)
def filters(device):
    x = wave(device)
    found = [
        F.lowpass_biquad(x, RATE, 1000),
        F.highpass_biquad(x, RATE, 500),
        F.bandpass_biquad(x, RATE, 1000),
        F.equalizer_biquad(x, RATE, 1000, 3.0),
        F.treble_biquad(x, RATE, 3.0),
        F.bass_biquad(x, RATE, 3.0),
        F.deemph_biquad(x, 44100),
        F.contrast(x),
        F.dcshift(x, 0.1),
        F.flanger(x[None, :, :400], RATE),
        F.phaser(x[:, :400], RATE),
        F.overdrive(x[:, :400]),
        F.loudness(wave(device, 1, 16000), RATE),
    ]
    a = torch.tensor([[1.0, -0.5, 0.2]] * 2, device=device).requires_grad_()
    b = torch.tensor([[0.3, 0.1, 0.2]] * 2, device=device).requires_grad_()
    x = x.clone().requires_grad_()
    found += [F.lfilter(x, a, b), F.filtfilt(x.detach(), a.detach(), b.detach())]
    found[-2].square().sum().backward()
    return [*found, a.grad, b.grad, x.grad]


@check("forced_align, merge_tokens, edit_distance, transducer loss with gradients")
def sequences(device):
    log_probs = randn(1, 20, 6).log_softmax(2).to(device)
    labels = torch.tensor([[1, 3, 3, 2]], device=device)
    path, scores = F.forced_align(log_probs, labels)
    spans = F.merge_tokens(path[0], scores[0].exp())
    logits = randn(2, 8, 4, 6).to(device).requires_grad_()
    wanted = torch.tensor([[1, 2, 5], [3, 3, 1]], dtype=torch.int32, device=device)
    lengths = [torch.tensor(n, dtype=torch.int32, device=device) for n in ([8, 6], [3, 3])]
    loss = F.rnnt_loss(logits, wanted, *lengths)
    loss.backward()
    told = [float(n) for span in spans for n in (span.token, span.start, span.end, span.score)]
    return [path, scores, *told, loss, logits.grad, float(F.edit_distance("abcd", "bcde"))]


@check("beamforming: PSD, MVDR, RTF", tolerance=1e-3)
def beams(device):
    spectrum = torch.view_as_complex(randn(4, 33, 40, 2)).to(device)
    masks = randn(2, 33, 40).sigmoid().to(device)
    speech, noise = T.PSD()(spectrum, masks[0]), T.PSD()(spectrum, masks[1])
    vector = F.rtf_power(speech, noise, 0, 3)
    weights = [T.SoudenMVDR()(spectrum, speech, noise, 0), T.RTFMVDR()(spectrum, vector, noise, 0), vector]
    return [torch.view_as_real(each) for each in weights]


def model_check(name: str, make, loss_of, **options):
    @check(f"{name}, training", **options)
    def run(device):
        torch.manual_seed(0)
        return train(make().to(device), lambda model, step: loss_of(model, device, step))

    return run


def ctc(scores: torch.Tensor, device: str) -> torch.Tensor:
    """Of batch x time x classes."""
    labels = randint(scores.shape[2] - 1, scores.shape[0], 3).add(1).to(device)
    sizes = [torch.full((scores.shape[0],), n, dtype=torch.int64) for n in (scores.shape[1], 3)]
    return nnf.ctc_loss(scores.log_softmax(2).transpose(0, 1), labels, *sizes)


def wav2vec() -> torch.nn.Module:
    parts = {"extractor_mode": "group_norm", "extractor_conv_layer_config": [(16, 10, 5), (16, 3, 2)]}
    parts |= {"extractor_conv_bias": False, "encoder_embed_dim": 16, "encoder_projection_dropout": 0.0}
    parts |= {"encoder_pos_conv_kernel": 16, "encoder_pos_conv_groups": 4, "encoder_num_layers": 2}
    parts |= {"encoder_num_heads": 2, "encoder_attention_dropout": 0.0, "encoder_ff_interm_features": 32}
    parts |= {"encoder_ff_interm_dropout": 0.0, "encoder_dropout": 0.0, "encoder_layer_norm_first": False}
    return torchaudio.models.wav2vec2_model(**parts, encoder_layer_drop=0.0, aux_num_out=8)


def lengths(device: str, *sizes: int) -> torch.Tensor:
    return torch.tensor(sizes, device=device)


model_check("Wav2Vec2", wav2vec, lambda m, d, s: ctc(m(wave(d, 2, 1600, seed=s % 2))[0], d))
model_check(
    "Conformer",
    lambda: torchaudio.models.Conformer(16, 2, 32, 2, 7),
    lambda m, d, s: m(wave(d, 2, 20, 16, seed=s % 2), lengths(d, 20, 15))[0].square().mean(),
)
model_check(
    "Emformer",
    lambda: torchaudio.models.Emformer(16, 2, 32, 2, 4, right_context_length=1),
    lambda m, d, s: m(wave(d, 2, 21, 16, seed=s % 2), lengths(d, 20, 15))[0].square().mean(),
    slow=True,
)
model_check(
    "ConvTasNet",
    lambda: torchaudio.models.ConvTasNet(2, 16, 32, 3, 16, 32, 2, 2),
    lambda m, d, s: m(wave(d, 2, 1, 800, seed=s % 2)).square().mean(),
    slow=True,
)
model_check(
    "DeepSpeech",
    lambda: torchaudio.models.DeepSpeech(16, 8, 6, dropout=0.0),
    lambda m, d, s: m(wave(d, 2, 1, 20, 16, seed=s % 2)).square().mean(),
)


if __name__ == "__main__":
    main("torchaudio")
