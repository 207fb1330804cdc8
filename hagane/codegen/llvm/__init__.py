"""The LLVM code generator. T: a Type or "f32", "16xi8"; x: a Value, Var or number; p a pointer; v a Value.

Module(target): function(name, [(arg, T[, attrs])], result, internal, inline) declare constant lanes(T)
text()
Function: arg(n) ret(x) call(fn, *x) call_pointer address_of intrinsic(name, T, *v) const(T, x) exact();
Var(f, T, x)
memory: load(T, p, off, align) store(v, p, off, align, nontemporal) masked_load(T, p, mask, off, fill) copy
fill masked_store(v, p, mask, off) gather(T, p, offs, mask, fill) scatter(v, p, offs, mask) ptr(p, off)
stack(n) prefetch
vectors: broadcast(x, n) load_broadcast(T, n, p, off) iota(n, T) const_vector mask_below(n, lanes) extract
insert shuffle(a, b, lanes) slice concat transpose(rows) reduce(v, op) reduce_sum|prod|max|min any all
numbers: x.lt|le|gt|ge|eq|ne|ult|ule|ugt|uge(y) x.ashr x.srem select(c, a, b) fma abs sqrt floor ceil trunc
round_half_even copysign is_nan fmax fmin (NaN propagates) fmax_fast fmin_fast imax imin floor_div floor_mod
cast(v, T, signed, saturate) bitcast float_bits narrow_bf16_native dot_bf16(acc, a, b) dot_u8s8(acc, a, b)
control: with loop(lo, hi, step, keep) as i, loop_nonempty, while_(fn), if_(c), if_else(c) as (then,
otherwise)
threads: atomic_load atomic_store atomic_update compare_exchange fence pause
"""

from hagane.codegen.llvm.dsl import Function, Module, Operand, Type, Value, Var

__all__ = ["Function", "Module", "Operand", "Type", "Value", "Var"]
