#pragma once
// A user's own schedule: a file in the place of a schedule's name (Layout::schedule).

#include <string>

#include "funicular/parallel/layout.h"
#include "funicular/pipeline/generators.h"
#include "funicular/pipeline/placement.h"
#include "funicular/pipeline/schedule.h"

namespace funicular::parallel {

using pipeline::is_schedule_file;

/// Reads a schedule, checks it (pipeline/validity.h), and adds the messages that its rows may leave out. Throws
/// InputError if it cannot be run, or has rows for another number of ranks.
pipeline::Schedule read_schedule_for(const std::string& path, int ranks);

/// The placement of a file's stages. Throws InputError if --stages puts them on other numbers of ranks.
pipeline::Placement placement_of_file(const Layout& layout, const pipeline::Schedule& file);

}  // namespace funicular::parallel
