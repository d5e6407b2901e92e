package io.speck.guard;

import java.util.Set;
import java.util.TreeSet;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.Type;

/** Rewrites {@link Runtime}: {@code exit} and {@code halt} call {@link ExitGuard#check} first. */
final class GuardedRuntime {
    private static final Set<String> GUARDED = Set.of("exit", "halt");
    private static final String INT_TO_VOID = "(I)V";

    private GuardedRuntime() {}

    /**
     * @param bytes the class file of {@link Runtime}
     * @return the class file with the guard
     * @throws IllegalArgumentException if the class file is newer than what ASM reads
     * @throws IllegalStateException if a method is missing
     */
    static byte[] guard(byte[] bytes) {
        ClassReader reader = new ClassReader(bytes);
        ClassWriter writer = new ClassWriter(reader, ClassWriter.COMPUTE_MAXS);
        Set<String> missing = new TreeSet<>(GUARDED);
        reader.accept(
                new ClassVisitor(Opcodes.ASM9, writer) {
                    @Override
                    public MethodVisitor visitMethod(
                            int access, String name, String type, String generic, String[] thrown) {
                        MethodVisitor method =
                                super.visitMethod(access, name, type, generic, thrown);
                        boolean guarded = INT_TO_VOID.equals(type) && GUARDED.contains(name);
                        if (guarded) {
                            missing.remove(name);
                        }
                        return guarded ? new CallFirst(method, name) : method;
                    }
                },
                0);
        if (!missing.isEmpty()) {
            throw new IllegalStateException("java.lang.Runtime lacks " + missing);
        }
        return writer.toByteArray();
    }

    private static final class CallFirst extends MethodVisitor {
        private final String name;

        private CallFirst(MethodVisitor method, String name) {
            super(Opcodes.ASM9, method);
            this.name = name;
        }

        @Override
        public void visitCode() {
            super.visitCode();
            visitLdcInsn(name);
            visitVarInsn(Opcodes.ILOAD, 1);
            visitMethodInsn(
                    Opcodes.INVOKESTATIC,
                    Type.getInternalName(ExitGuard.class),
                    "check",
                    "(Ljava/lang/String;I)V",
                    false);
        }
    }
}
