//! Devices of Kelpie: memory, columns, kernel cache and launches on CPU, CUDA and the SIMT interpreter.
