#pragma once
// Weights cut into slices over ranks that work on the same rows, and replicas of such groups: Shoeybi et al.,
// "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism", 2019.

#include <memory>
#include <string>

#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

/// Of D · T ranks, rank d · T + t holds slice t of replica d (comm/mesh.h). Its model is the given one with the slices
/// that core/slicing.h declares in place of the weights; `inner`, "ddp" or "zero1" to "zero3", trains that among
/// the D ranks that hold the same slices. So weights, gradients and optimiser state that are cut take 1/T of the memory, and
/// with ZeRO 1/(D·T); what is not cut is on every rank, and stays the same there, because its gradients do.
/// (With three replicas or more on several hosts, slices of unequal sizes have their gradients added in different orders, so
/// that what is whole may drift apart; the comparison of replicas notices it. Take a T that divides heads and vocabulary.)
///
/// Losses, gradients, and the norms that clipping, LAMB and LARS take are those of one process up to the order of sums:
/// sums of squares are added over the slices layer by layer, and what is whole on every rank is counted once.
/// Checkpoints hold whole tensors, of which each rank writes and reads its regions.
///
/// Throws InputError where the ranks are no multiple of T, and at attach for a model that declares no slices, has
/// fewer heads than T, or consists of several that are trained.
std::unique_ptr<Strategy> make_tensor_parallel(const std::string& inner, comm::Group world,
                                               const StrategyOptions& options);

}  // namespace funicular::parallel
