# MPI: one module for each library found, loaded by src/transport/mpi/load.c when a launcher asks for it. Without
# any the rest is built all the same.
set(shim ${PROJECT_SOURCE_DIR}/src/transport/mpi/shim.c)
get_target_property(sources fo_transport SOURCES)
list(REMOVE_ITEM sources ${shim})
set_target_properties(fo_transport PROPERTIES SOURCES "${sources}")
target_link_libraries(fo_transport PUBLIC ${CMAKE_DL_LIBS})

set(FO_MPI_FAMILIES "")
foreach(wrapper mpicc.openmpi mpicc.mpich mpicc)
  string(MAKE_C_IDENTIFIER FO_${wrapper} variable)
  find_program(${variable} ${wrapper})
  mark_as_advanced(${variable})
  if(NOT ${variable})
    continue()
  endif()
  # which library is it?
  file(WRITE ${PROJECT_BINARY_DIR}/mpi/which.c
    "#include <mpi.h>\n#if defined(OPEN_MPI)\nfo: openmpi\n#elif defined(MPICH_VERSION)\nfo: mpich\n#else\nfo: mpi\n#endif\n")
  execute_process(COMMAND ${${variable}} -E ${PROJECT_BINARY_DIR}/mpi/which.c OUTPUT_VARIABLE text ERROR_QUIET)
  if(NOT text MATCHES "\nfo: ([a-z]+)")
    continue()
  endif()
  set(family ${CMAKE_MATCH_1})
  execute_process(COMMAND ${${variable}} -show OUTPUT_VARIABLE line ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(family IN_LIST FO_MPI_FAMILIES OR NOT line)
    continue()
  endif()
  list(APPEND FO_MPI_FAMILIES ${family})

  # its flags, without the compiler
  separate_arguments(words UNIX_COMMAND "${line}")
  list(REMOVE_AT words 0)
  set(includes ${words})
  list(FILTER includes INCLUDE REGEX "^-I")
  list(TRANSFORM includes REPLACE "^-I" "")
  set(links ${words})
  list(FILTER links INCLUDE REGEX "^-(L|l|Wl,)|^/")
  set(folders ${words})
  list(FILTER folders INCLUDE REGEX "^-L")
  list(TRANSFORM folders REPLACE "^-L" "")

  add_library(fo_mpi_${family}_library INTERFACE)
  target_include_directories(fo_mpi_${family}_library SYSTEM INTERFACE ${includes})
  target_link_libraries(fo_mpi_${family}_library INTERFACE ${links})
  add_library(fo_mpi_${family} MODULE ${shim})
  add_dependencies(fo_transport fo_mpi_${family}) # they speak one version of shim.h
  target_include_directories(fo_mpi_${family} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(fo_mpi_${family} PRIVATE fo_mpi_${family}_library)
  set_target_properties(fo_mpi_${family} PROPERTIES PREFIX lib OUTPUT_NAME flashoverlap-mpi-${family}
    SUFFIX .so BUILD_RPATH "${folders}" INSTALL_RPATH "${folders}")
  message(STATUS "MPI: ${family} (${${variable}})")
endforeach()

list(JOIN FO_MPI_FAMILIES " " families)
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/transport/mpi/load.c PROPERTIES COMPILE_DEFINITIONS
  "FO_MPI_FAMILIES=\"${families}\";FO_MPI_BUILD_DIR=\"${PROJECT_BINARY_DIR}\"")
