// SPDX-License-Identifier: BSD-2-Clause

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;

/** Passes statements to PostgreSQL: Statements PORT. README.md says which. */
public class Statements {
	public static void main(String[] arguments) throws SQLException {
		String url = "jdbc:postgresql://127.0.0.1:" + arguments[0] + "/postgres?user=gousdt";
		try (Connection connection = DriverManager.getConnection(url)) {
			run(connection, 20, 0, "SELECT note FROM t WHERE a = ?");
			run(connection, 10, 0, "UPDATE t SET note = 'x' WHERE a = ?");
			connection.setAutoCommit(false);
			run(connection, 5, 100, "INSERT INTO t VALUES (?, 'new')");
			connection.commit();
			connection.setAutoCommit(true);
			for (int i = 0; i < 10; i++) {
				try (PreparedStatement s = connection.prepareStatement("SELECT 1/0")) {
					s.execute();
				} catch (SQLException e) {
					// as it must be
				}
			}
		}
	}

	private static void run(Connection connection, int times, int first, String statement)
			throws SQLException {
		for (int i = first; i < first + times; i++) {
			try (PreparedStatement s = connection.prepareStatement(statement)) {
				s.setInt(1, i);
				s.execute();
			}
		}
	}
}
