#pragma once
// Runs an action on every rank, so that an error on one rank becomes an error on all of them.

#include <exception>
#include <functional>
#include <map>
#include <string>

#include "funicular/base/error.h"
#include "funicular/comm/group.h"

namespace funicular::comm {

/// Calls `action` on every rank. If the action throws on some ranks, this function throws on all. A rank whose action
/// threw gets its own exception. Every other rank gets an error of the same kind that names the first rank that
/// failed. All ranks must call it. The action itself must not call collectives.
void together(const comm::Group& group, const std::function<void()>& action);

/// Throws InputError of `component` unless `describe` returns equal maps on all ranks; the error names the entry that
/// differs. The map holds what decides a result that the ranks make together, by its name. All ranks must call it.
void require_equal(const comm::Group& group, const std::string& component,
                   const std::function<std::map<std::string, std::string>()>& describe);

/// Calls `make` on rank 0 and returns its result on all ranks. Throws as together does. All ranks must call it.
std::string from_first(const comm::Group& group, const std::function<std::string()>& make);

}  // namespace funicular::comm
