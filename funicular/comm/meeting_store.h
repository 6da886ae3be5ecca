#pragma once
// A connection to the meeting point (comm/meeting.h) as c10d's store, for the sources that pass it on to c10d. It is
// apart from meeting.h, since c10d's headers take seconds to compile.

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace funicular::comm {

struct Connection {
  c10::intrusive_ptr<c10d::Store> store;
};

}  // namespace funicular::comm
