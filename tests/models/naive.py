"""Each model's objective written as its formula reads, with no algebra to make it fast.

The functions use a fast model's own layers and draw their noise in the same order, so that under
the same seed both forms must give the same objective and gradients. The benchmark times them too.
"""

import math

import torch
import torch.nn.functional as F


def c2ae(model, x, y):
    a = model.feature_encoder(x).sigmoid() - 0.5
    e = model.label_encoder(y).sigmoid() - 0.5
    difference = a - e
    embedding = torch.trace(difference @ difference.T) + model.ortho_lambda * (ortho(a) + ortho(e))
    output = pairwise_rank(model.decoder(e).sigmoid(), y)
    with torch.no_grad():
        model.decoder(a)
    return (model.emb_weight * embedding + model.out_weight * output.sum()) / len(x)


def ortho(code):
    return (code.T @ code - torch.eye(code.shape[1], dtype=code.dtype)).square().sum()


def pairwise_rank(p, y):
    """Sum exp(-5 (p_j - p_k)) over relevant j and irrelevant k, pair by pair; p is (..., b, q)."""
    pairs = y[:, :, None] * (1 - y)[:, None, :]
    terms = torch.exp(-5 * (p[..., :, None] - p[..., None, :])) * pairs
    return terms.sum((-2, -1)) / (5 * pairs.sum((-2, -1)).clamp(min=1))


def mpvae(model, x, y):
    label_mean, label_logvar = model.label_head(model.label_encoder(torch.cat([x, y], 1)))
    feature_mean, feature_logvar = model.feature_head(model.feature_encoder(x))
    noise = torch.randn_like(label_mean)
    draws = torch.randn(len(x), model.samples, model.residual.shape[1], dtype=x.dtype)
    draws = draws.transpose(0, 1)
    total = 0.0
    for mean, logvar, output in (
        (label_mean, label_logvar, model.label_output),
        (feature_mean, feature_logvar, model.feature_output),
    ):
        latent = mean + (logvar / 2).exp() * noise
        probit_mean = output(model.decoder(torch.cat([x, latent], 1)))
        nll, rank = probit_losses(probit_mean, draws @ model.residual.T, y)
        total = total + model.nll_weight * nll.mean() + model.rank_weight * rank.mean()
    kl = feature_logvar - label_logvar - 1 + (label_logvar - feature_logvar).exp()
    kl = kl + (feature_mean - label_mean).square() / (feature_logvar.exp() + 1e-6)
    return total + model.kl_weight * 0.5 * kl.sum(1).mean()


def probit_losses(mean, shift, y):
    expected = torch.special.ndtr(shift + mean) * (1 - 1e-6) + 5e-7
    truth = torch.where(y > 0.5, expected, 1 - expected)
    likelihood = truth.log().sum(2).exp().mean(0)
    return -likelihood.log(), pairwise_rank(expected, y).mean(0)


def clif(model, x, y):
    embedding = model.embed_labels()
    logits = clif_logits(model, x, model.gate(embedding).sigmoid())
    unit = embedding / (embedding.norm(dim=1, keepdim=True) + 1e-6)
    target = model.graph + torch.eye(len(model.graph), dtype=x.dtype)
    misfit = (target - unit @ unit.T).square().mean()
    return F.binary_cross_entropy_with_logits(logits, y) + model.graph_weight * misfit


def clif_logits(model, x, gate):
    features = model.feature_encoder(x)[:, None] * gate
    return grouped_convolution(model.fusion(features), model.classifier)


def grouped_convolution(features, classifier):
    """One classifier per label as the authors write it: a convolution with a group per label."""
    n_rows, n_labels, width = features.shape
    flat = features.reshape(n_rows, n_labels * width, 1)
    weight, bias = classifier.weight[:, :, None].reshape(n_labels, width, 1), classifier.bias
    return F.conv1d(flat, weight, bias, groups=n_labels)[:, :, 0]


def dela(model, x, y):
    mean, logvar = model.head(model.encoder(x))
    gates = model.gates()
    noise = (logvar / 2).exp() * torch.randn_like(mean)
    logits = dela_logits(model, x, mean[:, None] + gates * noise[:, None])
    bce = F.binary_cross_entropy_with_logits(logits, y, reduction="none").sum(1).mean()
    return bce + model.kl_weight * dela_kl(mean, logvar, gates).mean()


def dela_logits(model, x, code):
    """Decode every (sample, label) pair; code is (b, q, D)."""
    wide = torch.cat([x[:, None].expand(-1, code.shape[1], -1), code], 2)
    return grouped_convolution(model.decoder(model.decoder_input(wide)), model.classifier)


def dela_kl(mean, logvar, gates):
    mean, logvar = mean[:, None], logvar[:, None]
    terms = -logvar - 2 * (gates + 1e-6).log() - 1 + logvar.exp() * gates.square() + mean.square()
    return 0.5 * terms.sum(2).mean(1)


def dela_predict(model, x):
    with torch.no_grad():
        mean, _ = model.head(model.encoder(x))
        code = mean[:, None].expand(-1, model.n_labels, -1)
        return dela_logits(model, x, code).sigmoid()


def paca(model, x, y):
    feature_mean, feature_logvar = model.feature_head(model.feature_encoder(x))
    label_mean, label_logvar = model.label_head(model.label_encoder(y))
    latent = feature_mean + (feature_logvar / 2).exp() * torch.randn_like(feature_mean)
    z = model.instance_map(torch.cat([x, latent], 1))
    logits = log_density(model.positive, z) - log_density(model.negative, z)
    latent_y = label_mean + (label_logvar / 2).exp() * torch.randn_like(label_mean)
    labels = model.label_decoder(latent_y)
    decoded = model.feature_decoder(z)
    if model.binary_features:
        reconstruction = F.binary_cross_entropy_with_logits(decoded, x, reduction="none")
    else:
        reconstruction = (decoded.sigmoid() - x).square()
    kl = label_logvar - feature_logvar - 1 + (feature_logvar - label_logvar).exp()
    kl = kl + (label_mean - feature_mean).square() / (label_logvar.exp() + 1e-8)
    regularization = 0.5 * kl.sum(1) + bce_sum(labels, y)
    return (
        reconstruction.sum(1)
        + model.regularization_weight * regularization
        + model.classification_weight * bce_sum(logits, y)
    ).mean()


def bce_sum(logits, y):
    return F.binary_cross_entropy_with_logits(logits, y, reduction="none").sum(1)


def log_density(flow, z):
    """Push every (sample, label) pair with its one-hot label through the flow; (b, q)."""
    n_labels = flow.scale.first.in_features
    one_hot = torch.eye(n_labels, dtype=z.dtype).repeat(len(z), 1)
    pairs = z.repeat_interleave(n_labels, 0)
    alpha, beta, omega = sigmoidal_parameters(flow.sigmoidal, pairs, one_hot)
    warped, log_slope = sigmoidal(pairs, alpha, beta, omega)
    scale = F.softplus(one_hot_residual(flow.scale, one_hot))
    moved = scale * warped + one_hot_residual(flow.shift, one_hot)
    normal = -0.5 * (moved.square() + math.log(2 * math.pi))
    return (normal + scale.log() + log_slope).sum(1).view(len(z), n_labels)


def sigmoidal_parameters(flow, pairs, one_hot):
    if not hasattr(flow, "inner"):
        return flow.bias.expand(*pairs.shape, -1).chunk(3, -1)
    hidden = F.linear(pairs, flow.inner.weight * flow.mask_in, flow.inner.bias)
    hidden = F.elu(hidden + flow.condition(one_hot))
    settings = F.linear(hidden, flow.outer.weight * flow.mask_out, flow.outer.bias)
    return flow.units(settings.view(*pairs.shape, -1)).chunk(3, -1)


def sigmoidal(z, alpha, beta, omega):
    """Warp (rows, D) values; the parameters are (rows, D, m)."""
    a, log_w = F.softplus(alpha), F.log_softmax(omega, -1)
    t = a * z[..., None] + beta
    level = (log_w.exp() * torch.sigmoid(t)).sum(-1) * (1 - 1e-6) + 5e-7
    log_terms = log_w + F.logsigmoid(t) + F.logsigmoid(-t) + a.log()
    log_slope = torch.logsumexp(log_terms, -1) + math.log(1 - 1e-6)
    log_on, log_off = level.log(), torch.log1p(-level)
    return log_on - log_off, log_slope - log_on - log_off


def one_hot_residual(network, one_hot):
    return network.second(F.relu(network.first(one_hot))) + network.skip(one_hot)
