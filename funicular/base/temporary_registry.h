#pragma once
// The temporaries of this process, as a signal handler can remove them.

#include "funicular/base/file.h"

namespace funicular {

/// Notes a file or folder that goes if a signal ends the process. Returns its place in the registry, -1 if there are too
/// many: the next run removes it then.
int register_temporary(const fs::path& path);
/// Forgets it; -1: nothing.
void unregister_temporary(int slot);

}  // namespace funicular
