#include "funicular/report/page.h"

// Made by CMake of uPlot's files where the set-up has fetched them.
#ifdef FUNICULAR_UPLOT
#include <funicular_uplot.inc>
#endif

namespace funicular::report {

ChartLibrary chart_library() {
#ifdef FUNICULAR_UPLOT
  return {FUNICULAR_UPLOT_SCRIPT, FUNICULAR_UPLOT_STYLE, FUNICULAR_UPLOT_LICENCE};
#else
  return {};
#endif
}

}  // namespace funicular::report
