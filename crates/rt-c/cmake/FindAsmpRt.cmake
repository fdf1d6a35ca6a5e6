# Finds libasmp_rt. find_package(AsmpRt) then offers:
#   AsmpRt::AsmpRt   the library with asmp_rt.h
#   AsmpRt::RTLinux  the same with RTLinux's headers before the system's, and rtl_main.c compiled in: the project needs C
#                    among its languages, also where its own sources are C++
# AsmpRt_ROOT (or CMAKE_PREFIX_PATH) says where it is installed.

find_path(AsmpRt_INCLUDE_DIR asmp_rt.h)
find_library(AsmpRt_LIBRARY asmp_rt)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(AsmpRt REQUIRED_VARS AsmpRt_LIBRARY AsmpRt_INCLUDE_DIR)

if(AsmpRt_FOUND AND NOT TARGET AsmpRt::AsmpRt)
  find_package(Threads REQUIRED)
  add_library(AsmpRt::AsmpRt UNKNOWN IMPORTED)
  set_target_properties(AsmpRt::AsmpRt PROPERTIES
    IMPORTED_LOCATION "${AsmpRt_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${AsmpRt_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES Threads::Threads)
endif()
# Without C, CMake would leave rtl_main.c out in silence.
if(AsmpRt_FOUND AND CMAKE_C_COMPILER AND NOT TARGET AsmpRt::RTLinux)
  # BEFORE: its pthread.h and linux/module.h stand in front of the system's.
  add_library(AsmpRt::RTLinux INTERFACE IMPORTED)
  target_include_directories(AsmpRt::RTLinux BEFORE INTERFACE "${AsmpRt_INCLUDE_DIR}/rtlinux")
  target_sources(AsmpRt::RTLinux INTERFACE "${AsmpRt_INCLUDE_DIR}/rtlinux/rtl_main.c")
  target_link_libraries(AsmpRt::RTLinux INTERFACE AsmpRt::AsmpRt)
endif()
mark_as_advanced(AsmpRt_INCLUDE_DIR AsmpRt_LIBRARY)
