#pragma once
// Weights cut into slices over ranks that work on the same rows, and replicas of such groups: Shoeybi et al.,
// "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism", 2019.

#include <memory>
#include <string>

#include "funicular/parallel/layout.h"

namespace funicular::parallel {

/// Of D · P · T ranks, rank (d · P + p) · T + t holds slice t of stage p of replica d (comm/mesh.h). Its model is the given one
/// with the slices that core/slicing.h declares in place of the weights; an inner strategy ("ddp", "zero1" to "zero3",
/// "pipeline" and so on, by the layout) trains that among the D · P ranks that hold slices of the same number. So weights,
/// gradients and optimiser state that are cut take 1/T of the memory, and with ZeRO 1/(D·T); what is not cut is on every rank
/// of its stage, and stays the same there, because its gradients do. Stages are cut by the whole weights, the same for all
/// slices, and send to the rank of the same slice; the ranks of a tensor group go through one row of the schedule together.
/// (With three replicas or more on several hosts, slices of unequal sizes have their gradients added in different orders, so
/// that what is whole may drift apart; the comparison of replicas notices it. Take a T that divides heads and vocabulary.)
///
/// Losses, gradients, and the norms that clipping, LAMB and LARS take are those of one process up to the order of sums:
/// sums of squares are added over the slices layer by layer, and what is whole on every rank is counted once.
/// Checkpoints hold whole tensors, of which each rank writes and reads its regions.
///
/// `layout` is one that Layout::on gave. Throws InputError at attach for a model that declares no slices, or has fewer heads than
/// T, and for encoders that share a weight which they do not cut alike. Implements Overlapping for schedules that update weights while the
/// pipeline is full.
std::unique_ptr<Strategy> make_tensor_parallel(const Layout& layout, comm::Group world,
                                               const StrategyOptions& options);

}  // namespace funicular::parallel
