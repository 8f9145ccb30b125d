# Compiler settings of the kernel room (vectorised files built once an instruction set).
