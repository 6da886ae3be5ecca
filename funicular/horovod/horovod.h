#pragma once
// Data-parallel training with the interface of Horovod for PyTorch. docs/how_to/migrate_horovod.md tells how to migrate
// a script, and what differs.

#include "funicular/horovod/collectives.h"            // IWYU pragma: export
#include "funicular/horovod/distributed_optimizer.h"  // IWYU pragma: export
#include "funicular/horovod/shared_state.h"           // IWYU pragma: export
