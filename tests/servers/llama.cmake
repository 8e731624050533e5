# Read by llama.cpp's project(): its parts for command lines, half of what there is to compile, are not what Python needs.
set(LLAMA_BUILD_COMMON OFF)
