#pragma once
// The optimisers. A new one is a file pair, such as sgd.h and sgd.cpp, and its name here.

#include "funicular/optim/adam.h"          // IWYU pragma: export
#include "funicular/optim/adamw.h"         // IWYU pragma: export
#include "funicular/optim/lamb.h"          // IWYU pragma: export
#include "funicular/optim/lars.h"          // IWYU pragma: export
#include "funicular/optim/lion.h"          // IWYU pragma: export
#include "funicular/optim/sgd.h"           // IWYU pragma: export
#include "funicular/optim/stable_adamw.h"  // IWYU pragma: export

/// Settings of each optimiser, in the order of --help and of the docs.
#define FUNICULAR_OPTIMIZERS(X) X(AdamW) X(Adam) X(Sgd) X(Lamb) X(Lars) X(Lion) X(StableAdamW)

/// Updates of single elements, for which kernels are compiled. Each has:
///   kStates       the number of states of an element
///   Rule<T>(update)(T& parameter, T gradient, T&... states)
#define FUNICULAR_UPDATES(X) X(AdamUpdate) X(DescentUpdate) X(MomentumUpdate) X(LionUpdate)

/// Updates whose step along a direction has a length that depends on the layer's norms. Each has:
///   kStates       the number of states of an element.
///   Rule<T>(update)(T parameter, T gradient, T&... states)   updates the states. It returns the value whose
///                                                            squares are summed, usually the direction.
///   Rule<T>(update).direction(T parameter, T... states)      returns the direction again, without an update.
/// For an update with kCountsElements, the layer's number of elements replaces the square of the parameter's norm.
#define FUNICULAR_DIRECTIONS(X) X(LambUpdate) X(StableAdamWUpdate)
