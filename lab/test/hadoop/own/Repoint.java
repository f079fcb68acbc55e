import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Enumeration;
import java.util.Map;
import java.util.TreeMap;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.jar.JarOutputStream;
import org.objectweb.asm.AnnotationVisitor;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.Type;

/**
 * Copies Hadoop's published test classes so that they test another scheduler: Repoint IN.jar OUT.jar SUBCLASS.
 * Where a test makes a FairScheduler, extends it or names its class, the copy uses the subclass. Nothing that a test
 * asserts is changed. Limits of time are multiplied: the machine may be busy. With SUBCLASS "-" only that is done, so
 * that both runs are otherwise the same.
 */
public final class Repoint {
  private static final String STOCK = "org/apache/hadoop/yarn/server/resourcemanager/scheduler/fair/FairScheduler";
  private static final long PATIENCE = 30;

  private final String subclass; // null to change limits of time only
  private final Map<String, Integer> changed = new TreeMap<>();

  private Repoint(String subclass) {
    this.subclass = subclass;
  }

  public static void main(String[] args) throws IOException {
    Repoint r = new Repoint(args[2].equals("-") ? null : args[2].replace('.', '/'));
    try (JarFile in = new JarFile(args[0]); OutputStream file = Files.newOutputStream(Path.of(args[1]));
        JarOutputStream out = new JarOutputStream(file)) {
      for (Enumeration<JarEntry> all = in.entries(); all.hasMoreElements(); ) {
        JarEntry e = all.nextElement();
        try (InputStream content = in.getInputStream(e)) {
          byte[] bytes = content.readAllBytes();
          out.putNextEntry(new JarEntry(e.getName()));
          out.write(e.getName().endsWith(".class") ? r.copy(bytes) : bytes);
          out.closeEntry();
        }
      }
    }
    r.changed.forEach((where, n) -> System.out.println(where + " " + n));
    if (r.subclass != null && r.changed.isEmpty()) {
      throw new IOException("no test uses " + STOCK);
    }
  }

  private byte[] copy(byte[] bytes) {
    ClassReader reader = new ClassReader(bytes);
    ClassWriter writer = new ClassWriter(0);
    reader.accept(new Copy(writer), 0);
    return writer.toByteArray();
  }

  private final class Copy extends ClassVisitor {
    private String name;
    private boolean extendsStock;

    Copy(ClassVisitor next) {
      super(Opcodes.ASM9, next);
    }

    private boolean stock(String type) {
      return subclass != null && STOCK.equals(type);
    }

    private String change() {
      changed.merge(name, 1, Integer::sum);
      return subclass;
    }

    @Override
    public void visit(int version, int access, String own, String signature, String parent, String[] interfaces) {
      name = own;
      extendsStock = stock(parent);
      super.visit(version, access, own, signature, extendsStock ? change() : parent, interfaces);
    }

    @Override
    public MethodVisitor visitMethod(int access, String method, String descriptor, String signature, String[] exceptions) {
      return new MethodVisitor(Opcodes.ASM9, super.visitMethod(access, method, descriptor, signature, exceptions)) {
        @Override
        public AnnotationVisitor visitAnnotation(String type, boolean visible) {
          AnnotationVisitor next = super.visitAnnotation(type, visible);
          return !type.equals("Lorg/junit/Test;") ? next : new AnnotationVisitor(Opcodes.ASM9, next) {
            @Override
            public void visit(String key, Object value) {
              super.visit(key, key.equals("timeout") ? (Object) ((Long) value * PATIENCE) : value);
            }
          };
        }

        @Override
        public void visitTypeInsn(int opcode, String type) {
          super.visitTypeInsn(opcode, opcode == Opcodes.NEW && stock(type) ? change() : type);
        }

        @Override
        public void visitMethodInsn(int opcode, String owner, String called, String of, boolean isInterface) {
          boolean ours = opcode == Opcodes.INVOKESPECIAL && stock(owner) && (called.equals("<init>") || extendsStock);
          super.visitMethodInsn(opcode, ours ? subclass : owner, called, of, isInterface);
        }

        @Override
        public void visitLdcInsn(Object value) {
          boolean ours = value instanceof Type && ((Type) value).getSort() == Type.OBJECT && stock(((Type) value).getInternalName());
          super.visitLdcInsn(ours ? Type.getObjectType(change()) : value);
        }
      };
    }
  }
}
