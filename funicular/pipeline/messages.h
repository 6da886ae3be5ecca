#pragma once
// Sends and receives: put into a schedule, and checked for deadlock.

#include <string>

#include "funicular/pipeline/placement.h"
#include "funicular/pipeline/schedule.h"

namespace funicular::pipeline {

/// The rank that an action sends to or receives from.
int peer_of(const Action& message, const Placement& placement);

/// The schedule with a send behind each pass that another rank needs, and the receive on that rank before everything
/// that starts later. Sends and receives come in pairs in one order of all actions (that of their starts, where each
/// takes one unit of time), so ranks that do them one after the other, each send ending when it is received, cannot
/// wait for each other in a circle; and between any two ranks messages are sent and received in the same order.
/// Nothing is changed where there are messages already. Throws as simulate does.
Schedule with_messages(const Schedule& schedule);

/// Runs the sends and receives of a schedule that has them (none beyond the first and the last stage) under strict rendezvous: ranks do their rows in order, a send
/// ends when it is received, and messages between two ranks arrive in the order in which they were sent. Gives what
/// goes wrong, with the circle of ranks that wait for each other; "": nothing.
std::string deadlock_of(const Schedule& schedule);

}  // namespace funicular::pipeline
