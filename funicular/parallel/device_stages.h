#pragma once
// A model whose stages lie on several devices of one process: a pipeline without a launcher.

#include <memory>

#include "funicular/parallel/layout.h"
#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

/// Makes one pipeline (parallel/pipeline_parallel.h) whose ranks are Layout::devices devices of this process. Each
/// device has a thread, and they exchange messages in memory (comm::Group::in_threads). Device 0 works on the model
/// that attach is given. Each further device works on a copy (Model::replicate), which keeps only the weights of its
/// own stages. A pipeline of as many processes gives the same results, to the bit. Callers see one rank with the whole
/// state.
///
/// `layout` comes from Layout::on. attach throws InputError for a model that cannot be replicated, and for an optimiser
/// without Optimizer::another. After an error on a device the strategy is broken: all that the devices do together
/// throws.
std::unique_ptr<Strategy> make_device_stages(const Layout& layout, const StrategyOptions& options);

}  // namespace funicular::parallel
