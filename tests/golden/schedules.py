"""The learning rate of every update is that of transformers' schedule, with and without a warm-up.

usage: schedules.py SCHEDULE_RATES_PROGRAM
"""

import json
import math
import subprocess
import sys

import torch
from transformers import optimization

PEAK, TOLERANCE = 0.03, 1e-15


def peer(name: str, optimizer, warmup: int, total: int, settings: dict):
    """transformers' schedule."""
    if name == "constant":
        return optimization.get_constant_schedule(optimizer)
    if name == "constant_with_warmup":
        return optimization.get_constant_schedule_with_warmup(optimizer, warmup)
    if name == "inverse_sqrt":
        return optimization.get_inverse_sqrt_schedule(optimizer, warmup)
    if name == "polynomial":
        return optimization.get_polynomial_decay_schedule_with_warmup(
            optimizer, warmup, total, power=settings.get("power", 1), lr_end=settings.get("final_rate", 1e-7))
    if name == "wsd":
        decay = min(math.ceil(total * settings.get("decay_ratio", 0.2)), total - warmup)
        return optimization.get_wsd_schedule(optimizer, warmup, decay, num_training_steps=total, decay_type="1-sqrt",
                                             min_lr_ratio=settings.get("final_rate", 0) / PEAK)
    make = {"linear": optimization.get_linear_schedule_with_warmup, "cosine": optimization.get_cosine_schedule_with_warmup,
            "cosine_with_restarts": optimization.get_cosine_with_hard_restarts_schedule_with_warmup}[name]
    return make(optimizer, warmup, total, **{f"num_{setting}": value for setting, value in settings.items()})


def cases():
    """(schedule, settings)"""
    for name in ("linear", "constant", "constant_with_warmup", "inverse_sqrt"):
        yield name, {}
    for settings in ({}, {"cycles": 1.5}):
        yield "cosine", settings
    for settings in ({}, {"cycles": 3}):
        yield "cosine_with_restarts", settings
    for settings in ({}, {"power": 2, "final_rate": 0.001}):
        yield "polynomial", settings
    for settings in ({}, {"decay_ratio": 0.5}, {"decay_ratio": 1}, {"decay_ratio": 0.5, "final_rate": 0.001}):
        yield "wsd", settings


def main():
    tests, expected = [], []
    for name, settings in cases():
        for warmup, total in ((0, 1), (0, 40), (7, 40), (39, 40)):
            if warmup and name == "wsd" and "final_rate" in settings:
                continue  # transformers' warm-up begins at that rate, the program's at 0
            optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
            schedule, rates = peer(name, optimizer, warmup, total, settings), []
            for _ in range(total + 3):
                rates.append(optimizer.param_groups[0]["lr"])
                optimizer.step()
                schedule.step()
            tests.append({"schedule": name, "settings": settings, "warmup_steps": warmup, "total_steps": total, "peak": PEAK})
            expected.append(rates)
    done = subprocess.run([sys.argv[1]], input="".join(json.dumps(test) + "\n" for test in tests),
                          capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(tests), done.stderr
    largest = 0.0
    for test, theirs, ours in zip(tests, expected, answers):
        for step, (a, b) in enumerate(zip(theirs, ours, strict=True)):
            assert abs(a - b) <= TOLERANCE, f"{test}: update {step} has {b}, expected {a}"
            largest = max(largest, abs(a - b))
    print(f"{len(tests)} schedules, largest difference {largest:.1e}")


main()
