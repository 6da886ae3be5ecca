#pragma once
// Weights cut into slices over ranks that work on the same rows, and replicas of such groups: Shoeybi et al.,
// "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism", 2019.

#include <memory>
#include <string>

#include "funicular/parallel/layout.h"

namespace funicular::parallel {

/// With D · P · T ranks, rank (d · P + p) · T + t holds slice t of stage p of replica d (comm/mesh.h). Its model is the
/// given one, with the slices that core/slicing.h declares in place of whole weights. An inner strategy trains this
/// model among the D · P ranks that hold slices of the same number. The layout chooses it: "ddp", "zero1" to "zero3",
/// "pipeline" and so on.
///
/// So weights that are cut, and their gradients and optimiser state, take 1/T of the memory, and with ZeRO 1/(D·T). A
/// weight that is not cut is on every rank of its stage. It stays equal there, because its gradients are equal. Stages
/// are cut by the whole weights, so they are the same for all slices. A stage sends to the rank with the same slice of
/// the next stage. The ranks of a tensor group go through one row of the schedule together.
///
/// Losses, gradients, and the norms for clipping, LAMB and LARS equal one process's up to the order of sums. Sums of
/// squares are added over the slices layer by layer, and a weight that is whole on every rank counts once. Checkpoints
/// hold whole tensors; each rank writes and reads its regions of them.
///
/// `layout` comes from Layout::on. attach throws InputError for a model that is not on the CPU, declares no slices, or
/// has fewer heads than T. Also throws it for encoders that share a weight but cut it differently. Without
/// StrategyOptions::deterministic, three or more replicas on several hosts need slices of equal sizes. Otherwise attach
/// throws, because gradients would be added in different orders. So take a T that divides heads and vocabulary.
/// Implements Overlapping for schedules that update weights while the pipeline is full.
std::unique_ptr<Strategy> make_tensor_parallel(const Layout& layout, comm::Group world,
                                               const StrategyOptions& options);

}  // namespace funicular::parallel
