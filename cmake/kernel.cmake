# Compiler settings of the kernel room. src/kernel/vec/ is built once an instruction set, from the same
# sources; the room's own build of them is the generic variant.
set(vec_sources elements rows pack attention)
list(TRANSFORM vec_sources PREPEND ${PROJECT_SOURCE_DIR}/src/kernel/vec/)
list(TRANSFORM vec_sources APPEND .c)

# -Wno-psabi: 64-byte vectors are passed between inlined functions only. -fno-math-errno: sqrtf in lanes.
set_source_files_properties(${vec_sources} PROPERTIES COMPILE_OPTIONS "-Wno-psabi;-fno-math-errno")

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/kernel/vec/dispatch.c PROPERTIES
    COMPILE_DEFINITIONS FO_KERNEL_VEC_X86)
  foreach(variant haswell skylake)
    add_library(fo_kernel_vec_${variant} OBJECT ${vec_sources})
    target_include_directories(fo_kernel_vec_${variant} PRIVATE
      ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(fo_kernel_vec_${variant} PRIVATE OpenMP::OpenMP_C)
    target_compile_definitions(fo_kernel_vec_${variant} PRIVATE FO_VEC_VARIANT=${variant})
    target_sources(fo_kernel PRIVATE $<TARGET_OBJECTS:fo_kernel_vec_${variant}>)
  endforeach()
  target_compile_options(fo_kernel_vec_haswell PRIVATE -march=haswell)
  target_compile_options(fo_kernel_vec_skylake PRIVATE -march=skylake-avx512)
endif()
