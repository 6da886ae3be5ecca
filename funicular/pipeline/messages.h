#pragma once
// Adds sends and receives to a schedule, and checks them for deadlock.

#include <string>

#include "funicular/pipeline/placement.h"
#include "funicular/pipeline/schedule.h"

namespace funicular::pipeline {

/// The rank that an action sends to or receives from.
int peer_of(const Action& message, const Placement& placement);

/// Adds a send behind each pass whose result another rank needs, and the receive on that rank before all its later
/// actions. Sends and receives follow one global order: the order of the actions' starts, if each action takes one
/// unit of time. Thus ranks cannot deadlock, even if each send waits until it is received. Between any two ranks,
/// messages are sent and received in the same order. A schedule that has messages is returned unchanged. Throws as
/// simulate does.
Schedule with_messages(const Schedule& schedule);

/// Checks the sends and receives of a schedule under strict rendezvous. Ranks run their rows in order, a send ends
/// when it is received, and messages between two ranks keep their order. The schedule has messages, but none beyond
/// the first and the last stage. Returns a description of the deadlock, with the circle of waiting ranks; "": none.
std::string deadlock_of(const Schedule& schedule);

}  // namespace funicular::pipeline
