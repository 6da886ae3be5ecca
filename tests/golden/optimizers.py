"""LAMB, LARS, Lion and StableAdamW step as timm's do, in float64, over five steps at a changing rate.

usage: optimizers.py OPTIMIZER_STEPS_PROGRAM
"""

import importlib
import json
import subprocess
import sys
import sysconfig
import types
from pathlib import Path

import torch

STEPS, TOLERANCE = 5, 1e-12


def timm_optimizer(file: str, name: str):
    """A class of timm.optim. The package itself would import its image models, which need more than torch."""
    folder = Path(sysconfig.get_path("purelib")) / "timm"
    for package, path in (("timm", folder), ("timm.optim", folder / "optim")):
        if package not in sys.modules:
            sys.modules[package] = types.ModuleType(package)
            sys.modules[package].__path__ = [str(path)]
    return getattr(importlib.import_module(f"timm.optim.{file}"), name)


def layers():
    """(decay, values): matrices of one and of several blocks, a normalisation, a bias and a matrix that start at zero."""
    torch.manual_seed(5)
    return [(True, torch.randn(30, 31, dtype=torch.double) * 0.1), (True, torch.randn(135, 61, dtype=torch.double)),
            (False, torch.randn(31, dtype=torch.double) * 3), (False, torch.zeros(17, dtype=torch.double)),
            (True, torch.zeros(5, 7, dtype=torch.double))]


def cases():
    """(optimiser, first rate, settings)"""
    lamb = {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3, "weight_decay": 0.1, "bias_correction": True,
            "trust_ratio": "apex"}
    for change in ({}, {"bias_correction": False}, {"trust_ratio": "paper"}, {"trust_bounds": [0, 1]}, {"epsilon": 1e-6, "weight_decay": 0.01}):
        yield "lamb", 0.05, {**lamb, **change}
    lars = {"trust_coefficient": 0.01, "momentum": 0.9, "nesterov": False, "weight_decay": 0.1, "epsilon": 1e-8,
            "trust_ratio": "apex", "clip": False, "rate_in_momentum": False}
    for change in ({}, {"nesterov": True}, {"trust_ratio": "paper"}, {"momentum": 0.0}, {"clip": True, "trust_coefficient": 0.5}):
        yield "lars", 0.01 if "clip" in change else 5.0, {**lars, **change}
    for change in ({}, {"beta1": 0.95, "beta2": 0.98}, {"weight_decay": 0.0}):
        yield "lion", 0.05, {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, **change}
    # timm's weight decay is not damped, and its mean of squares has epsilon beside the root: neither counts here.
    for beta2 in (0.99, 0.5):
        yield "stable_adamw", 0.05, {"beta1": 0.9, "beta2": beta2, "epsilon": 1e-16, "weight_decay": 0.0}


def peer(name: str, settings: dict, parameters: list):
    groups = [{"params": [p for (decay, _), p in zip(layers(), parameters) if decay == which],
               "weight_decay": settings["weight_decay"] if which else 0.0} for which in (True, False)]
    if name == "lamb":
        return timm_optimizer("lamb", "Lamb")(
            groups, betas=(settings["beta1"], settings["beta2"]), eps=settings["epsilon"], max_grad_norm=None,
            bias_correction=settings["bias_correction"], always_adapt=settings["trust_ratio"] == "paper", trust_clip="trust_bounds" in settings)
    if name == "stable_adamw":
        return timm_optimizer("adamw", "AdamWLegacy")(
            groups, betas=(settings["beta1"], settings["beta2"]), eps=settings["epsilon"], clipping_threshold=1.0)
    if name == "lion":
        return timm_optimizer("lion", "Lion")(groups, betas=(settings["beta1"], settings["beta2"]))
    return timm_optimizer("lars", "Lars")(
        groups, lr=1.0, momentum=settings["momentum"], nesterov=settings["nesterov"], trust_coeff=settings["trust_coefficient"],
        eps=settings["epsilon"], always_adapt=settings["trust_ratio"] == "paper", trust_clip=settings["clip"])


def main():
    tests, expected = [], []
    for name, rate, settings in cases():
        parameters = [torch.nn.Parameter(values.clone()) for _, values in layers()]
        optimizer, steps = peer(name, settings, parameters), []
        for step in range(1, STEPS + 1):
            for group in optimizer.param_groups:
                group["lr"] = rate / step
            for p in parameters:
                p.grad = torch.randn_like(p)
            steps.append({"rate": rate / step, "gradients": [p.grad.flatten().tolist() for p in parameters]})
            optimizer.step()
        tests.append({"optimizer": name, "settings": settings, "steps": steps,
                      "layers": [{"decay": decay, "values": values.flatten().tolist()} for decay, values in layers()]})
        expected.append([p.detach().flatten() for p in parameters])
    done = subprocess.run([sys.argv[1]], input="".join(json.dumps(test) + "\n" for test in tests),
                          capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(tests), done.stderr
    largest = 0.0
    for test, theirs, ours in zip(tests, expected, answers):
        for (_, start), a, b in zip(layers(), theirs, ours, strict=True):
            found = torch.tensor(b, dtype=torch.double)
            assert not torch.equal(a, start.flatten()), "nothing was learnt"
            difference = ((a - found).abs() / a.abs().clamp_min(1)).max().item()
            assert difference <= TOLERANCE, f"{test['optimizer']} {test['settings']}: {difference}"
            largest = max(largest, difference)
    print(f"{len(tests)} cases of {STEPS} steps, largest difference {largest:.1e}")


main()
