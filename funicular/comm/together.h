#pragma once
// What one rank cannot do, none does.

#include <exception>
#include <functional>
#include <string>

#include "funicular/base/error.h"
#include "funicular/comm/group.h"

namespace funicular::comm {

/// Calls `action` on every rank; if it throws on any, throws on all: what it threw where it threw, and
/// elsewhere an error of the same kind that names the first such rank. Collective; `action` must not be.
void together(const comm::Group& group, const std::function<void()>& action);

/// What rank 0 makes, on all ranks; throws as together does. Collective.
std::string from_first(const comm::Group& group, const std::function<std::string()>& make);

}  // namespace funicular::comm
