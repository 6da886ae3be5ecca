#pragma once
// The version of the library, for programs that are compiled against it.
//
// Before 1.0 a change of the minor number may change the interfaces in these headers. Checkpoints, token
// stores and model folders of older versions are read, or refused with a remedy.

#define FUNICULAR_VERSION_MAJOR 0
#define FUNICULAR_VERSION_MINOR 2
#define FUNICULAR_VERSION_PATCH 0

#define FUNICULAR_TEXT_OF(value) #value
#define FUNICULAR_TEXT(value) FUNICULAR_TEXT_OF(value)
/// MAJOR.MINOR.PATCH
#define FUNICULAR_VERSION                 \
  FUNICULAR_TEXT(FUNICULAR_VERSION_MAJOR) \
  "." FUNICULAR_TEXT(FUNICULAR_VERSION_MINOR) "." FUNICULAR_TEXT(FUNICULAR_VERSION_PATCH)
